package decisions

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/helper/qos"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// complete is the pod as the API server hands it to kubelet: with defaults, validated, and with a UID and its QoS class. What has no effect on
// admission, such as an image, needn't be given.
func complete(given *v1.Pod) (*v1.Pod, error) {
	pod := given.DeepCopy()
	pod.UID = types.UID(pod.Name)
	if pod.Namespace == "" {
		pod.Namespace = v1.NamespaceDefault
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if containers[i].Image == "" {
				containers[i].Image = "image"
			}
		}
	}
	legacyscheme.Scheme.Default(pod)
	internal := &core.Pod{}
	if err := legacyscheme.Scheme.Convert(pod, internal, nil); err != nil {
		return nil, err
	}
	defaultPodLevel(internal)
	internal.Status.QOSClass = qos.GetPodQOS(internal)
	options := podutil.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)
	if problems := validation.ValidatePodCreate(internal, options); len(problems) > 0 {
		return nil, problems.ToAggregate()
	}
	created := &v1.Pod{}
	return created, legacyscheme.Scheme.Convert(internal, created, nil)
}

// containersOf are a pod's containers in the order in which kubelet admits and starts them.
func containersOf(pod *v1.Pod) []*v1.Container {
	var all []*v1.Container
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			all = append(all, &containers[i])
		}
	}
	return all
}

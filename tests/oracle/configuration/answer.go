package configuration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"gpufleet.node/oracle/machine"
	"gpufleet.node/oracle/node"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
)

// FeatureGates are those that a question's kubelet would set. With an answer instead, kubelet doesn't get that far.
func FeatureGates(request json.RawMessage) (map[string]bool, *Answer, error) {
	question, err := read(request)
	if err != nil {
		return nil, nil, err
	}
	warned.take()
	s, err := load(context.Background(), question)
	var refused *refusal
	if errors.As(err, &refused) {
		return nil, &Answer{Stage: refused.stage, Message: refused.Error(), Warnings: warned.take()}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return s.FeatureGates, nil, nil
}

// Ask answers a question in a process whose feature gates are still unset, or set to those of this question.
func Ask(request json.RawMessage) (any, error) {
	question, err := read(request)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	warned.take()
	s, err := load(ctx, question)
	answer := &Answer{Warnings: warned.take()}
	if err == nil {
		if answer.Effective, err = effective(&s.KubeletConfiguration); err != nil {
			return nil, err
		}
		err = start(ctx, question, s)
	}
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		answer.Stage, answer.Message = refused.stage, refused.Error()
	case err != nil:
		return nil, err
	default:
		answer.Accepted = true
	}
	return answer, nil
}

func read(request json.RawMessage) (*Question, error) {
	question := &Question{}
	decoder := json.NewDecoder(bytes.NewReader(request))
	return question, decoder.Decode(question)
}

// start goes through a kubelet's start as far as it changes nothing of the node.
func start(ctx context.Context, question *Question, s *server) error {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(s.FeatureGates); err != nil {
		return &refusal{Gates, err}
	}
	if errs := logsapi.Validate(&s.Logging, utilfeature.DefaultFeatureGate, field.NewPath("logging")); len(errs) > 0 {
		return &refusal{Validation, errs.ToAggregate()}
	}
	if err := options.ValidateKubeletServer(s); err != nil {
		return &refusal{Validation, err}
	}
	info, err := machine.Known(question.Root)
	if err != nil {
		return err
	}
	manager, err := construct(ctx, info, s)
	if err != nil {
		return &refusal{Constructors, err}
	}
	states := filepath.Join(question.Root, s.RootDirectory)
	if question.Fresh {
		states = ""
	}
	if err := state(ctx, states, info, s, manager); err != nil {
		return &refusal{State, err}
	}
	if err := allocatable(manager); err != nil {
		return &refusal{Start, err}
	}
	return nil
}

// construct makes the container manager with the managers in it, and parses all eviction thresholds as the kubelet object does.
func construct(ctx context.Context, info *machine.Info, s *server) (cm.ContainerManager, error) {
	c, err := node.Configure(ctx, info, &s.KubeletConfiguration, &s.KubeletFlags)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(sandboxed, "device-plugins"), 0o700); err != nil {
		return nil, err
	}
	// kubelet registers some metrics once in a process, and there is more than one kubelet here.
	defaultRegistry, prometheus.DefaultRegisterer = metrics.NewKubeRegistry(), prometheus.NewRegistry()
	// CgroupsPerQOS stays false: cgroups of the host aren't looked for.
	manager, err := newContainerManager(ctx, info, *c, s.FailSwapOn)
	if err != nil {
		return nil, err
	}
	_, err = eviction.ParseThresholdConfig(s.EnforceNodeAllocatable, s.EvictionHard, s.EvictionSoft, s.EvictionSoftGracePeriod, s.EvictionMinimumReclaim)
	return manager, err
}

// sandboxed is a folder that the sandbox keeps away from the host.
const sandboxed = "/var/lib/kubelet"

// warned keeps what kubelet logs as a warning or an error, and that it fell back to lenient decoding.
var warned = &log{}

type log struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (l *log) Write(text []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(text)
}

func (l *log) take() []string {
	klog.Flush()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var lines []string
	for _, line := range strings.Split(l.text.String(), "\n") {
		if _, message, found := strings.Cut(line, "] "); found && (line[0] != 'I' || strings.Contains(message, "lenient decoding")) {
			lines = append(lines, message)
		}
	}
	l.text.Reset()
	return lines
}

// warnings takes what the flags' parser says of deprecated flags.
type warnings struct{}

func (warnings) Write(text []byte) (int, error) { return len(text), nil }

// Quiet keeps kubelet's log for the answers instead of showing it.
func Quiet() {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	_ = flags.Parse([]string{"--logtostderr=false", "--stderrthreshold=FATAL"})
	klog.SetOutput(warned)
}

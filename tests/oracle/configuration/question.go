// Package configuration asks kubelet whether it starts with a configuration on a machine, and which of its stages speaks.
package configuration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
)

// Question is a machine and what kubelet is started with there.
type Question struct {
	Root    string            `json:"root"`
	Main    string            `json:"main"`     // the text of the file that --config names; without it kubelet is started without
	DropIns map[string]string `json:"drop_ins"` // the texts of the files in --config-dir
	Flags   []string          `json:"flags"`    // further flags
	Fresh   bool              `json:"fresh"`    // no state files, whatever the root has
	SwapOff bool              `json:"swap_off"` // no swap, whatever the root's /proc/swaps says (main.go sees to it)
}

// Stages of a kubelet's start, in their order.
const (
	Load         = "load"         // flags, files, drop-ins: reading and merging
	Gates        = "gates"        // the feature gates
	Validation   = "validation"   // ValidateKubeletConfiguration and the flags
	Constructors = "constructors" // what is made of it: amounts, thresholds, the managers' constructors
	State        = "state"        // the state files that the managers find
	Start        = "start"        // node allocatable against the machine
)

// Answer says whether kubelet starts, else which stage refuses with which words.
type Answer struct {
	Accepted  bool            `json:"accepted"`
	Stage     string          `json:"stage,omitempty"`
	Message   string          `json:"message,omitempty"`
	Effective json.RawMessage `json:"effective,omitempty"` // as /configz shows it
	Warnings  []string        `json:"warnings,omitempty"`
}

// refusal is an error with the stage that it comes from.
type refusal struct {
	stage string
	err   error
}

func (r *refusal) Error() string { return r.err.Error() }

// server is kubelet's flags and effective configuration.
type server = options.KubeletServer

// untouched has the feature gates as a kubelet has them when it begins.
var untouched = utilfeature.DefaultMutableFeatureGate.DeepCopy()

// load does what kubelet's command does first: flags, file, drop-ins, flags again. Defaults hang on feature gates, of which the flags' are
// set by then; the process's own stay as they are.
func load(ctx context.Context, question *Question) (s *server, err error) {
	defer func() { // defaulting panics on feature gates that kubelet doesn't know
		if raised := recover(); raised != nil {
			s, err = nil, &refusal{Gates, fmt.Errorf("%v", raised)}
		}
	}()
	processes := utilfeature.DefaultMutableFeatureGate
	defer func() { utilfeature.DefaultMutableFeatureGate = processes }()
	folder, err := os.MkdirTemp("", "oracle-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	arguments := append([]string{}, question.Flags...)
	if question.Main != "" {
		arguments = append(arguments, "--config="+write(folder, "config.yaml", question.Main))
	}
	if question.DropIns != nil {
		dropIns := filepath.Join(folder, "config.d")
		if err := os.Mkdir(dropIns, 0o700); err != nil {
			return nil, err
		}
		for name, text := range question.DropIns {
			write(dropIns, name, text)
		}
		arguments = append(arguments, "--config-dir="+dropIns)
	}

	flags := options.NewKubeletFlags()
	configuration, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	set.SetOutput(warnings{})
	flags.AddFlags(set)
	options.AddKubeletConfigFlags(set, configuration)
	options.AddGlobalFlags(set)
	if err := set.Parse(arguments); err != nil {
		return nil, &refusal{Load, fmt.Errorf("failed to parse kubelet flag: %w", err)}
	}
	if len(set.Args()) > 0 {
		return nil, &refusal{Load, fmt.Errorf("unknown command %s", set.Args()[0])}
	}
	gates := untouched.DeepCopy()
	if err := gates.SetFromMap(configuration.FeatureGates); err != nil {
		return nil, &refusal{Gates, err}
	}
	utilfeature.DefaultMutableFeatureGate = gates
	if err := options.ValidateKubeletFlags(flags); err != nil {
		return nil, &refusal{Validation, err}
	}
	clean := func(err error) error { return fmt.Errorf("%s", strings.ReplaceAll(err.Error(), folder, "")) }
	if flags.KubeletConfigFile != "" {
		if configuration, err = loadConfigFile(ctx, flags.KubeletConfigFile); err != nil {
			return nil, &refusal{Load, clean(err)}
		}
	}
	if flags.KubeletDropinConfigDirectory != "" {
		if err := merge(configuration, flags.KubeletDropinConfigDirectory); err != nil {
			return nil, &refusal{Load, clean(err)}
		}
	}
	if flags.KubeletConfigFile != "" || flags.KubeletDropinConfigDirectory != "" {
		if err := flagPrecedence(configuration, arguments); err != nil {
			return nil, &refusal{Load, err}
		}
	}
	return &server{KubeletFlags: *flags, KubeletConfiguration: *configuration}, nil
}

func write(folder, name, text string) string {
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}
	return path
}

// effective is a configuration as /configz shows it.
func effective(configuration *kubeletconfig.KubeletConfiguration) (json.RawMessage, error) {
	conversion, _, err := scheme.NewSchemeAndCodecs()
	if err != nil {
		return nil, err
	}
	versioned := &kubeletconfigv1beta1.KubeletConfiguration{}
	if err := conversion.Convert(configuration, versioned, nil); err != nil {
		return nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
	if err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

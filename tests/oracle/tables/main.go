// Command tables prints, as JSON, what the kubelet of this module version knows: its feature gates, as the process of kubelet
// registers them, and the maturity of its managers' policy options.
//
// It is built against one version of k8s.io/kubernetes after the other (see tests/oracle/tables.py). The options' maturity is in
// variables that kubelet doesn't export, so it is read from the source of that very module, whose folder is the argument.
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	metricsfeatures "k8s.io/component-base/metrics/features"
	_ "k8s.io/kubernetes/pkg/features"
)

type gate struct {
	Stage   string `json:"stage"`
	Default bool   `json:"default"`
	Locked  bool   `json:"locked"`
}

type answer struct {
	Gates           map[string]gate     `json:"gates"`
	Dependencies    map[string][]string `json:"dependencies"`
	CPUOptions      map[string]string   `json:"cpu_options"`
	TopologyOptions map[string]string   `json:"topology_options"`
	ManagerGates    []string            `json:"manager_gates"`
}

func main() {
	source := os.Args[1]
	result := answer{Gates: gates(), Dependencies: dependencies()}
	managers := filepath.Join(source, "pkg/kubelet/cm")
	result.CPUOptions = options(filepath.Join(managers, "cpumanager/policy_options.go"))
	result.TopologyOptions = options(filepath.Join(managers, "topologymanager/policy_options.go"))
	result.ManagerGates = consulted(managers, filepath.Join(source, "pkg/kubelet/apis/config/validation"))
	must(json.NewEncoder(os.Stdout).Encode(result))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// gates: what cmd/kubelet registers. Those of pkg/features come by import, the others as kubelet's packages add them in their init.
func gates() map[string]gate {
	must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	must(metricsfeatures.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	result := map[string]gate{}
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		stage := map[string]string{"ALPHA": "alpha", "BETA": "beta", "": "stable", "DEPRECATED": "deprecated"}[string(spec.PreRelease)]
		if stage == "" {
			continue // not known at this version yet
		}
		result[string(name)] = gate{stage, spec.Default, spec.LockToDefault}
	}
	return result
}

// dependencies: which gates a gate needs. Older minors know no such thing.
func dependencies() map[string][]string {
	result := map[string][]string{}
	registry, ok := utilfeature.DefaultMutableFeatureGate.(interface {
		Dependencies() map[featuregate.Feature][]featuregate.Feature
	})
	if !ok {
		return result
	}
	for name, needs := range registry.Dependencies() {
		for _, need := range needs {
			result[string(name)] = append(result[string(name)], string(need))
		}
		sort.Strings(result[string(name)])
	}
	return result
}

// options: the names in the variables alphaOptions, betaOptions and stableOptions of a policy_options.go.
func options(path string) map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	must(err)
	constants, result := map[string]string{}, map[string]string{}
	sets := map[string]ast.Expr{}
	for _, declaration := range file.Decls {
		general, ok := declaration.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok || len(value.Values) != len(value.Names) {
				continue
			}
			for i, name := range value.Names {
				if literal, ok := value.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING {
					constants[name.Name], err = strconv.Unquote(literal.Value)
					must(err)
				} else if strings.HasSuffix(name.Name, "Options") {
					sets[strings.TrimSuffix(name.Name, "Options")] = value.Values[i]
				}
			}
		}
	}
	if len(sets) != 3 {
		must(fmt.Errorf("%s: expected alphaOptions, betaOptions and stableOptions, found %d of them", path, len(sets)))
	}
	for stage, set := range sets {
		for _, argument := range set.(*ast.CallExpr).Args {
			name, known := constants[argument.(*ast.Ident).Name]
			if !known {
				must(fmt.Errorf("%s: %s isn't a constant of this file", path, argument.(*ast.Ident).Name))
			}
			result[name] = stage
		}
	}
	return result
}

// consulted: the feature gates that the sources under these folders name.
func consulted(folders ...string) []string {
	names := map[string]bool{}
	for _, folder := range folders {
		must(filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			must(err)
			ast.Inspect(file, func(node ast.Node) bool {
				if selector, ok := node.(*ast.SelectorExpr); ok {
					if base, ok := selector.X.(*ast.Ident); ok && (base.Name == "features" || base.Name == "kubefeatures") {
						names[selector.Sel.Name] = true
					}
				}
				return true
			})
			return nil
		}))
	}
	result := []string{}
	for name := range names {
		result = append(result, name)
	}
	sort.Strings(result)
	return result
}

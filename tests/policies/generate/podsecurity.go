package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// podSecurityVersion is the version whose checks decide, and whose pods are decided.
const podSecurityVersion = "v1.37"

// Pod is a line of `../pod-security/LEVEL.jsonl`.
type Pod struct {
	Name    string     `json:"name"`
	Allowed bool       `json:"allowed"`
	Reason  string     `json:"reason,omitempty"`
	Detail  string     `json:"detail,omitempty"`
	Pod     corev1.Pod `json:"pod"`
}

// podSecurity writes how each level decides the pods with which Pod Security Admission is tested.
func podSecurity() {
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	must(err)
	data := strings.TrimSpace(string(folder)) + "/test/testdata/"
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	must(err)
	version, err := api.ParseVersion(podSecurityVersion)
	must(err)
	must(os.MkdirAll("../pod-security", 0o755))
	for _, level := range []api.Level{api.LevelBaseline, api.LevelRestricted} {
		var out bytes.Buffer
		seen := map[string]bool{}
		for _, of := range []api.Level{level, api.LevelBaseline, api.LevelRestricted} {
			for _, side := range []string{"pass", "fail"} {
				paths, err := filepath.Glob(fmt.Sprintf("%s%s/%s/%s/*.yaml", data, of, podSecurityVersion, side))
				must(err)
				slices.Sort(paths)
				for _, path := range paths {
					name := fmt.Sprintf("%s/%s/%s", of, side, strings.TrimSuffix(filepath.Base(path), ".yaml"))
					text, err := os.ReadFile(path)
					must(err)
					one := decidePod(evaluator, api.LevelVersion{Level: level, Version: version}, text)
					if of == level && one.Allowed != (side == "pass") {
						panic(path + " is decided otherwise than its folder says")
					}
					if key := compact(one.Pod.Annotations) + compact(one.Pod.Spec); seen[key] {
						continue
					} else {
						seen[key] = true
					}
					one.Name = name
					out.WriteString(compact(one) + "\n")
				}
			}
		}
		must(os.WriteFile(fmt.Sprintf("../pod-security/%s.jsonl", level), out.Bytes(), 0o644))
	}
}

func decidePod(evaluator policy.Evaluator, level api.LevelVersion, text []byte) Pod {
	var pod corev1.Pod
	must(yaml.UnmarshalStrict(text, &pod))
	// The one default on which the answers depend.
	for at := range pod.Spec.Volumes {
		corev1defaults.SetDefaults_Volume(&pod.Spec.Volumes[at])
	}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
	one := Pod{Allowed: result.Allowed, Pod: pod}
	if !result.Allowed {
		one.Reason, one.Detail = result.ForbiddenReason(), result.ForbiddenDetail()
	}
	return one
}

package main

import (
	"slices"
	"strings"
	"testing"
)

const policyFolder = "../../policies"

func policyCaseNamed(t *testing.T, name string) policyCase {
	t.Helper()
	all, err := readPolicyCases(policyFolder, "../policies/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(one policyCase) bool { return one.name == name })
	if i < 0 {
		t.Fatalf("cases.txt has no %s", name)
	}
	return all[i]
}

func TestPoliciesOfACaseAreInForceInItsNamespaceOnly(t *testing.T) {
	all, err := readPolicyCases(policyFolder, "../policies/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, one := range all {
		for _, document := range one.policies {
			name := document["kind"].(string) + "/" + textAt(document, "metadata", "name")
			if names[name] {
				t.Errorf("%s: two have this name", name)
			}
			names[name] = true
			constraints, isPolicy := mapAt(document, "spec", "matchConstraints")
			if !isPolicy {
				continue
			}
			selector, _ := mapAt(constraints, "namespaceSelector")
			expressions, _ := selector["matchExpressions"].([]any)
			if len(expressions) == 0 {
				t.Errorf("%s: in force everywhere", name)
				continue
			}
			last := expressions[len(expressions)-1].(map[string]any)
			if last["key"] != nameLabel || !slices.Equal(last["values"].([]any), []any{one.name}) {
				t.Errorf("%s: in force in %v", name, last)
			}
		}
	}
	if len(all) < 60 {
		t.Errorf("only %d cases", len(all))
	}
}

func TestNamespacesOfParamsMoveWithTheCase(t *testing.T) {
	one := policyCaseNamed(t, "param-selector-and-namespace")
	i := slices.IndexFunc(one.policies, func(o object) bool { return o["kind"] == "ValidatingAdmissionPolicyBinding" })
	if got := textAt(one.policies[i], "spec", "paramRef", "namespace"); got != "param-selector-and-namespace-other" {
		t.Errorf("the binding has its params in %q", got)
	}
	var created []string
	for _, o := range one.cluster {
		created = append(created, o["kind"].(string)+" "+textAt(o, "metadata", "namespace")+"/"+textAt(o, "metadata", "name"))
	}
	for _, want := range []string{"Namespace /param-selector-and-namespace", "Namespace /param-selector-and-namespace-other",
		"ConfigMap param-selector-and-namespace/a", "ConfigMap param-selector-and-namespace-other/b"} {
		if !slices.Contains(created, want) {
			t.Errorf("%q lacks %q", created, want)
		}
	}
}

func TestAnAnswerThatThePoliciesDidNotGiveIsUnlikeTheirs(t *testing.T) {
	one := policyCaseNamed(t, "actions-deny")
	moved := strings.NewReplacer("'policy'", "'actions-deny-policy'", "'binding'", "'actions-deny-binding'").
		Replace(one.decision.Status.Message)
	if why := one.unlike(answer{code: 422, status: status{Message: moved}}); why != "" {
		t.Error(why)
	}
	for _, got := range []answer{
		{code: 201},
		{code: 403, status: status{Message: moved}},
		{code: 422, status: status{Message: `Deployment.apps "web" is invalid`}},
	} {
		if one.unlike(got) == "" {
			t.Errorf("%d %q passes", got.code, got.status.Message)
		}
	}
	warned := policyCaseNamed(t, "actions-warn")
	if warned.unlike(answer{code: 201}) == "" {
		t.Error("without its warning it passes")
	}
}

// Asks kube-apiserver's own code what each expression of cases.json is worth, and what it costs.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

type answer struct {
	Expression string  `json:"expression"`
	Refused    string  `json:"refused,omitempty"`
	Value      *bool   `json:"value,omitempty"`
	Error      string  `json:"error,omitempty"`
	Cost       *int64  `json:"cost,omitempty"`
}

type input struct {
	Object      map[string]any      `json:"object"`
	OldObject   map[string]any      `json:"oldObject"`
	Extra       map[string][]string `json:"extra"`
	Expressions []string            `json:"expressions"`
}

func main() {
	var in input
	data, err := os.ReadFile(os.Args[1])
	must(err)
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	must(dec.Decode(&in))
	object := objectOf(in.Object)
	old := objectOf(in.OldObject)
	kind := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	resource := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	who := &user.DefaultInfo{Name: "alice", UID: "u1", Groups: []string{"dev", "ops"}, Extra: in.Extra}
	options := &metav1.UpdateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "UpdateOptions"}, FieldManager: "kubectl"}
	attr := admission.NewAttributesRecord(object, old, kind, "default", "web", resource, "", admission.Update, options, false, who)
	versioned := &admission.VersionedAttributes{Attributes: attr, VersionedKind: kind, VersionedObject: object}
	if old != nil {
		versioned.VersionedOldObject = old
	}
	compiler := celplugin.NewConditionCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 36)))
	request := celplugin.CreateAdmissionRequest(attr, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
	answers := []answer{}
	for _, expression := range in.Expressions {
		condition := matchconditions.MatchCondition(admissionv1.MatchCondition{Name: "c", Expression: expression})
		evaluator := compiler.CompileCondition([]celplugin.ExpressionAccessor{&condition}, celplugin.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
		a := answer{Expression: expression}
		if errs := evaluator.CompilationErrors(); len(errs) > 0 {
			text := errs[0].Error()
			if i := strings.Index(text, "<input>:"); i >= 0 {
				text = text[i+len("<input>:"):]
			}
			a.Refused = strings.TrimSpace(strings.SplitN(text, "\n", 2)[0])
			answers = append(answers, a)
			continue
		}
		results, left, err := evaluator.ForInput(context.Background(), versioned, request, celplugin.OptionalVariableBindings{Authorizer: authorizer.AuthorizerFunc(decide)}, nil, celconfig.RuntimeCELCostBudgetMatchConditions)
		must(err)
		cost := celconfig.RuntimeCELCostBudgetMatchConditions - left
		a.Cost = &cost
		if results[0].Error != nil {
			text := results[0].Error.Error()
			if i := strings.LastIndex(text, "resulted in error: "); i >= 0 {
				text = text[i+len("resulted in error: "):]
			}
			a.Error = text
		} else {
			value, ok := results[0].EvalResult.Value().(bool)
			if !ok {
				panic(fmt.Sprintf("%s: %v", expression, results[0].EvalResult))
			}
			a.Value = &value
		}
		answers = append(answers, a)
	}
	out, err := json.MarshalIndent(answers, "", " ")
	must(err)
	fmt.Println(string(out))
}

// Allows what is got, and says in its reason what it was asked.
func decide(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	who := strings.Join(append([]string{a.GetUser().GetName()}, a.GetUser().GetGroups()...), ",")
	asked := []string{who, a.GetVerb(), a.GetPath()}
	if a.IsResourceRequest() {
		asked = []string{who, a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName()}
	}
	reason := strings.Join(asked, "|")
	switch a.GetVerb() {
	case "get":
		return authorizer.DecisionAllow, reason, nil
	case "fail":
		return authorizer.DecisionNoOpinion, reason, fmt.Errorf("made up")
	}
	return authorizer.DecisionDeny, reason, nil
}

// Numbers as an apiserver's decoder has them.
func plain(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		must(err)
		return f
	case map[string]any:
		for key, one := range v {
			v[key] = plain(one)
		}
	case []any:
		for at, one := range v {
			v[at] = plain(one)
		}
	}
	return value
}

func objectOf(fields map[string]any) runtime.Object {
	if fields == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: plain(fields).(map[string]any)}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Evaluates each expression of cases.json with kube-apiserver's own code, and says its value and its cost.
//
//	go run . ../cases.json                              the answers, by the version that go.mod names
//	go run . -trees CEL-GO CEL-SPEC ../expressions.json   the trees of parsed expressions, see versions.sh
//	go run . -changed ANSWERS [VERSION=ANSWERS ...]     the cases that have another answer in another version
//	go run . -splice SEED COUNT ../cases.json ../expressions.json FOLDER   new cases made of these, and their answers
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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
	Expression string `json:"expression,omitempty"`
	Refused    string `json:"refused,omitempty"`
	Value      *bool  `json:"value,omitempty"`
	Error      string `json:"error,omitempty"`
	Cost       *int64 `json:"cost,omitempty"`
}

type input struct {
	Object      map[string]any      `json:"object"`
	OldObject   map[string]any      `json:"oldObject"`
	Extra       map[string][]string `json:"extra"`
	Expressions []string            `json:"expressions"`
}

type change struct {
	Expression string             `json:"expression"`
	Answers    map[string]*answer `json:"answers"`
}

type changes struct {
	Follows string   `json:"follows"`
	Others  []string `json:"others"`
	Changed []change `json:"changed"`
}

func main() {
	if os.Args[1] == "-changed" {
		print(changed(os.Args[2], os.Args[3:]))
		return
	}
	if os.Args[1] == "-trees" {
		print(trees(os.Args[2], os.Args[3], os.Args[4]))
		return
	}
	if os.Args[1] == "-splice" {
		seed, err := strconv.ParseInt(os.Args[2], 10, 64)
		must(err)
		count, err := strconv.Atoi(os.Args[3])
		must(err)
		splice(seed, count, os.Args[4], os.Args[5], os.Args[6])
		return
	}
	print(answers(os.Args[1]))
}

// apiserver is the version of k8s.io/apiserver that this program is built with.
func apiserver() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		panic("no build information")
	}
	for _, module := range info.Deps {
		if module.Path == "k8s.io/apiserver" {
			return module.Version
		}
	}
	panic("k8s.io/apiserver is not there")
}

func changed(followed string, others []string) changes {
	all := changes{Follows: apiserver(), Others: []string{}, Changed: []change{}}
	var ours []answer
	read(followed, &ours)
	theirs := map[string][]answer{}
	for _, other := range others {
		version, path, _ := strings.Cut(other, "=")
		var answers []answer
		read(path, &answers)
		theirs[version] = answers
		all.Others = append(all.Others, version)
	}
	for at := range ours {
		one := change{ours[at].Expression, map[string]*answer{all.Follows: &ours[at]}}
		for _, version := range all.Others {
			if !same(ours[at], theirs[version][at]) {
				one.Answers[version] = &theirs[version][at]
			}
		}
		if len(one.Answers) > 1 {
			all.Changed = append(all.Changed, one)
		}
	}
	for _, one := range all.Changed {
		for _, answer := range one.Answers {
			answer.Expression = ""
		}
	}
	return all
}

// same: the texts of failures may differ.
func same(a, b answer) bool {
	return (a.Refused == "") == (b.Refused == "") && (a.Error == "") == (b.Error == "") &&
		reflect.DeepEqual(a.Value, b.Value) && reflect.DeepEqual(a.Cost, b.Cost)
}

func read(path string, into any) {
	data, err := os.ReadFile(path)
	must(err)
	decode(data, into)
}

func decode(data []byte, into any) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	must(dec.Decode(into))
}

func print(value any) {
	out, err := json.MarshalIndent(value, "", " ")
	must(err)
	fmt.Println(string(out))
}

func answers(path string) []answer {
	var in input
	read(path, &in)
	request := newRequest(in)
	answers := []answer{}
	for _, expression := range in.Expressions {
		a, evaluate := request.compile(expression)
		if evaluate != nil {
			a = evaluate()
		}
		answers = append(answers, a)
	}
	return answers
}

// compiler compiles as this version does.
var compiler = sync.OnceValue(func() celplugin.ConditionCompiler {
	parsed := version.MustParseGeneric(apiserver())
	return celplugin.NewConditionCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, parsed.Minor())))
})

// request is what expressions are evaluated for.
type request struct {
	versioned *admission.VersionedAttributes
	admission *admissionv1.AdmissionRequest
}

func newRequest(in input) *request {
	object := objectOf(in.Object)
	old := objectOf(in.OldObject)
	kind := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	resource := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	who := &user.DefaultInfo{Name: "alice", UID: "u1", Groups: []string{"dev", "ops"}, Extra: in.Extra}
	options := &metav1.UpdateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "UpdateOptions"}, FieldManager: "kubectl"}
	attr := admission.NewAttributesRecord(object, old, kind, "default", "web", resource, "", admission.Update, options, false, who)
	versioned, err := admission.NewVersionedAttributes(attr, kind, nil)
	must(err)
	return &request{versioned, celplugin.CreateAdmissionRequest(attr, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))}
}

// compile returns why an expression is refused, or what evaluates it.
func (r *request) compile(expression string) (answer, func() answer) {
	condition := matchconditions.MatchCondition(admissionregistrationv1.MatchCondition{Name: "c", Expression: expression})
	evaluator := compiler().CompileCondition([]celplugin.ExpressionAccessor{&condition}, celplugin.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	if errs := evaluator.CompilationErrors(); len(errs) > 0 {
		text := errs[0].Error()
		if i := strings.Index(text, "<input>:"); i >= 0 {
			text = text[i+len("<input>:"):]
		}
		return answer{Expression: expression, Refused: strings.TrimSpace(strings.SplitN(text, "\n", 2)[0])}, nil
	}
	return answer{}, func() answer {
		a := answer{Expression: expression}
		results, left, err := evaluator.ForInput(context.Background(), r.versioned, r.admission, celplugin.OptionalVariableBindings{Authorizer: authorizer.AuthorizerFunc(decide)}, nil, celconfig.RuntimeCELCostBudgetMatchConditions)
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
		return a
	}
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

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/google/cel-go/interpreter"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion"
)

// inTree is the plugin of kube-apiserver with a cell's policies in force, and the review of the cell.
type inTree struct {
	plugin     *validating.Plugin
	interfaces admission.ObjectInterfaces
	review     *admissionv1.AdmissionRequest
	expression string
}

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// start reads a cell, starts the plugin with its policies, and checks that it decides as the cell says.
func start(folder string) *inTree {
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	must(flags.Set("logtostderr", "false"))
	must(flags.Set("stderrthreshold", "FATAL"))
	klog.SetOutput(io.Discard)

	objects := policies(folder + "/policies.yaml")
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	client := fake.NewSimpleClientset(objects...)
	dynamicClient := dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme)
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin, err := validating.NewPlugin(nil)
	must(err)
	never := make(chan struct{})
	initializer.New(client, dynamicClient, factory, authorizerfactory.NewAlwaysAllowAuthorizer(),
		utilfeature.DefaultFeatureGate, compatibility.DefaultBuildEffectiveVersion(), never,
		testrestmapper.TestOnlyStaticRESTMapper(clientgoscheme.Scheme)).Initialize(plugin)
	plugin.SetExcludedAdmissionResources(exclusion.Excluded())
	must(plugin.ValidateInitialization())
	factory.Start(never)
	if !plugin.WaitForReady() {
		panic("the plugin does not become ready")
	}

	side := &inTree{
		plugin: plugin,
		interfaces: &admission.RuntimeObjectInterfaces{
			ObjectCreater:            legacyscheme.Scheme,
			ObjectTyper:              legacyscheme.Scheme,
			ObjectDefaulter:          legacyscheme.Scheme,
			ObjectConvertor:          legacyscheme.Scheme,
			EquivalentResourceMapper: runtime.NewEquivalentResourceRegistry(),
		},
		review: review(folder + "/review.json"),
	}
	if text, err := os.ReadFile(folder + "/expression.cel"); err == nil {
		side.expression = string(text)
	}
	must(side.validate(side.internal()))
	must(side.validate(side.decoded()))
	if _, err := os.Stat(folder + "/rejected.json"); err == nil {
		allowed := side.review
		side.review = review(folder + "/rejected.json")
		if side.validate(side.internal()) == nil {
			panic("the other review is not rejected")
		}
		side.review = allowed
	}
	return side
}

// policies reads policies and bindings, with the defaults that kube-apiserver gives them.
func policies(path string) []runtime.Object {
	text, err := os.ReadFile(path)
	must(err)
	var found []runtime.Object
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found
		}
		must(err)
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		object, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		must(err)
		legacyscheme.Scheme.Default(object)
		found = append(found, object)
	}
}

func review(path string) *admissionv1.AdmissionRequest {
	text, err := os.ReadFile(path)
	must(err)
	var review admissionv1.AdmissionReview
	must(json.Unmarshal(text, &review))
	return review.Request
}

// way returns what is measured under this name.
func (s *inTree) way(name string) func() {
	allowed := func(object runtime.Object) {
		if err := s.validate(object); err != nil {
			panic(err)
		}
	}
	switch name {
	case "decoded":
		object := s.decoded()
		return func() { allowed(object) }
	case "internal":
		object := s.internal()
		return func() { allowed(object) }
	case "bytes":
		return func() { allowed(s.internal()) }
	case "expression":
		return s.evaluation()
	case "condition":
		return s.condition()
	default:
		panic(name + " is none of decoded, internal, bytes, expression, condition")
	}
}

// validate has the plugin decide, as the admission chain does.
func (s *inTree) validate(object runtime.Object) error {
	return s.plugin.Validate(context.Background(), s.attributes(object), s.interfaces)
}

func (s *inTree) attributes(object runtime.Object) admission.Attributes {
	request := s.review
	resource := schema.GroupVersionResource(request.Resource)
	info := &user.DefaultInfo{Name: request.UserInfo.Username, Groups: request.UserInfo.Groups}
	options := &metav1.CreateOptions{}
	return admission.NewAttributesRecord(object, nil, podKind, request.Namespace, request.Name, resource, "",
		admission.Create, options, false, info)
}

// internal is the object as handlers of kube-apiserver decode it: with defaults, in the internal version.
func (s *inTree) internal() runtime.Object {
	object, _, err := legacyscheme.Codecs.UniversalDecoder().Decode(s.review.Object.Raw, nil, nil)
	must(err)
	return object
}

// decoded is the object in the version of the request, so that the plugin has nothing to convert.
func (s *inTree) decoded() runtime.Object {
	object, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(s.review.Object.Raw, nil, nil)
	must(err)
	object.GetObjectKind().SetGroupVersionKind(podKind)
	return object
}

func baseEnvironment() *environment.EnvSet {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
}

// activation has the variables of expressions.
type activation map[string]any

func (a activation) ResolveName(name string) (any, bool) {
	value, ok := a[name]
	return value, ok
}

func (activation) Parent() interpreter.Activation { return nil }

// evaluation evaluates the expression of the cell with cel-go: the program that the plugin makes of it, and values as
// the plugin makes them, which are made before.
func (s *inTree) evaluation() func() {
	result := cel.NewCompiler(baseEnvironment()).CompileCELExpression(
		&matchconditions.MatchCondition{Name: "condition", Expression: s.expression},
		cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
	if result.Error != nil {
		panic(fmt.Sprint(result.Error))
	}
	attributes := s.attributes(s.decoded())
	request := cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(attributes.GetResource()),
		metav1.GroupVersionKind(podKind))
	variables := activation{
		cel.ObjectVarName:    common.SchemalessTypedToVal(attributes.GetObject()),
		cel.OldObjectVarName: nil,
		cel.RequestVarName:   common.SchemalessTypedToVal(request),
	}
	return func() {
		value, _, err := result.Program.ContextEval(context.Background(), variables)
		must(err)
		if value == nil {
			panic("no value")
		}
	}
}

// condition decides the expression of the cell as a match condition.
func (s *inTree) condition() func() {
	evaluator := cel.NewConditionCompiler(baseEnvironment()).CompileCondition(
		[]cel.ExpressionAccessor{&matchconditions.MatchCondition{Name: "condition", Expression: s.expression}},
		cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
	failure := admissionregistrationv1.Fail
	matcher := matchconditions.NewMatcher(evaluator, &failure, "policy", "validating", "policy")
	attributes, err := admission.NewVersionedAttributes(s.attributes(s.decoded()), podKind, s.interfaces)
	must(err)
	authorizer := authorizerfactory.NewAlwaysAllowAuthorizer()
	return func() {
		if result := matcher.Match(context.Background(), attributes, nil, authorizer); result.Error != nil {
			panic(result.Error)
		}
	}
}

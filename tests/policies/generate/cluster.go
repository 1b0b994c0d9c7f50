package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unsafe"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	webhookgeneric "k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion"
)

// Answer is what is written of a case.
type Answer struct {
	Review     *admissionv1.AdmissionReview `json:"review"`
	Namespaces []*unstructured.Unstructured `json:"namespaces,omitempty"`
	Params     []*unstructured.Unstructured `json:"params,omitempty"`
	Resources  []Resource                   `json:"resources,omitempty"`
	Access     []Access                     `json:"access,omitempty"`
	// Defaults says that objects get the defaults of built-in kinds.
	Defaults bool `json:"defaults,omitempty"`
	// Refused are the faults for which kube-apiserver does not take the policies and bindings, by KIND/NAME. There is a
	// decision nevertheless if the case says that they are in etcd already.
	Refused  map[string][]string `json:"refused,omitempty"`
	Decision *Decision           `json:"decision,omitempty"`
	// Reversed is the decision if policies, bindings and params come in the opposite order, if it is another.
	Reversed *Decision `json:"reversed,omitempty"`
}

// Decision is what the two plugins make of the request. The object is absent if they leave it unchanged.
type Decision struct {
	Allowed          bool              `json:"allowed"`
	Status           *Status           `json:"status,omitempty"`
	Warnings         []string          `json:"warnings,omitempty"`
	AuditAnnotations map[string]string `json:"auditAnnotations,omitempty"`
	Object           runtime.Object    `json:"object,omitempty"`
	Checks           []Check           `json:"checks,omitempty"`
}

// Status is what kube-apiserver answers the client.
type Status struct {
	Code    int32                 `json:"code"`
	Reason  metav1.StatusReason   `json:"reason"`
	Message string                `json:"message"`
	Details *metav1.StatusDetails `json:"details,omitempty"`
}

// Check is what the authorizer was asked.
type Check struct {
	User          string   `json:"user,omitempty"`
	Groups        []string `json:"groups,omitempty"`
	Verb          string   `json:"verb,omitempty"`
	Group         string   `json:"group,omitempty"`
	Version       string   `json:"version,omitempty"`
	Resource      string   `json:"resource,omitempty"`
	Subresource   string   `json:"subresource,omitempty"`
	Namespace     string   `json:"namespace,omitempty"`
	Name          string   `json:"name,omitempty"`
	Path          string   `json:"path,omitempty"`
	FieldSelector string   `json:"fieldSelector,omitempty"`
	LabelSelector string   `json:"labelSelector,omitempty"`
}

func (c *Case) attributes() admission.Attributes {
	request, kind := c.Request, c.kind()
	extra := map[string][]string{}
	for key, values := range request.User.Extra {
		extra[key] = values
	}
	if request.User.Username == "" {
		request.User.Username = "alice"
		request.User.Groups = []string{"developers", "system:authenticated"}
	}
	info := &user.DefaultInfo{
		Name: request.User.Username, UID: request.User.UID, Groups: request.User.Groups, Extra: extra,
	}
	return admission.NewAttributesRecord(c.object(request.Object, kind), c.object(request.OldObject, kind), kind,
		request.Namespace, request.Name, parseResource(request.Resource), request.Subresource,
		admission.Operation(request.Operation), c.options(), request.DryRun, info)
}

func (c *Case) typed(kind schema.GroupVersionKind) bool {
	return !c.Custom && legacyscheme.Scheme.Recognizes(kind)
}

func (c *Case) interfaces() admission.ObjectInterfaces {
	interfaces := &admission.RuntimeObjectInterfaces{
		ObjectCreater:            legacyscheme.Scheme,
		ObjectTyper:              legacyscheme.Scheme,
		ObjectDefaulter:          noDefaults{},
		ObjectConvertor:          legacyscheme.Scheme,
		EquivalentResourceMapper: c.equivalents(),
	}
	if c.Defaults {
		interfaces.ObjectDefaulter = legacyscheme.Scheme
	}
	if !c.typed(c.kind()) {
		interfaces.ObjectCreater, interfaces.ObjectTyper = unstructuredKinds{}, unstructuredKinds{}
		interfaces.ObjectConvertor = unstructuredKinds{}
	}
	return interfaces
}

type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// unstructuredKinds creates, names and converts custom resources as their conversion `None` does.
type unstructuredKinds struct{}

func (unstructuredKinds) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object, nil
}

func (unstructuredKinds) ObjectKinds(object runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	return []schema.GroupVersionKind{object.GetObjectKind().GroupVersionKind()}, false, nil
}

func (unstructuredKinds) Recognizes(schema.GroupVersionKind) bool { return true }

// Convert converts to the version of out, as the converter of apiextensions-apiserver does.
func (k unstructuredKinds) Convert(in, out, _ any) error {
	target := out.(*unstructured.Unstructured)
	converted, err := k.ConvertToVersion(in.(*unstructured.Unstructured), target.GroupVersionKind().GroupVersion())
	if err != nil {
		return err
	}
	target.Object = converted.(*unstructured.Unstructured).Object
	return nil
}

func (unstructuredKinds) ConvertToVersion(in runtime.Object, gv runtime.GroupVersioner) (runtime.Object, error) {
	version, ok := gv.(schema.GroupVersion)
	if !ok {
		return nil, fmt.Errorf("%v is no version", gv)
	}
	out := in.(*unstructured.Unstructured).DeepCopy()
	out.SetGroupVersionKind(version.WithKind(out.GetKind()))
	return out, nil
}

func (unstructuredKinds) ConvertFieldLabel(schema.GroupVersionKind, string, string) (string, string, error) {
	return "", "", errors.New("unstructured objects have no field labels")
}

// review is the request as kube-apiserver sends it to a webhook that is registered for the resource of the request.
func review(c *Case) *admissionv1.AdmissionReview {
	attributes := c.attributes()
	versioned, err := admission.NewVersionedAttributes(attributes, attributes.GetKind(), c.interfaces())
	must(err)
	hook := webhook.NewValidatingWebhookAccessor("hook", "hooks", &admissionregistrationv1.ValidatingWebhook{
		AdmissionReviewVersions: []string{"v1"},
	})
	_, request, _, err := webhookrequest.CreateAdmissionObjects(versioned, &webhookgeneric.WebhookInvocation{
		Webhook:     hook,
		Resource:    attributes.GetResource(),
		Subresource: attributes.GetSubresource(),
		Kind:        attributes.GetKind(),
	})
	must(err)
	result := request.(*admissionv1.AdmissionReview)
	result.APIVersion, result.Kind = "admission.k8s.io/v1", "AdmissionReview"
	result.Request.UID = "b1e8e4b6-4f4d-4c58-9a34-1d1c5f0a6f5e"
	return result
}

// decide asks again while the plugin does not use the schemas yet that it has listed; nothing tells when it does.
func decide(c *Case, reversed bool) Decision {
	late := slices.ContainsFunc(c.Resources, func(resource Resource) bool { return resource.WithoutSchema })
	for attempt := 1; ; attempt++ {
		decision := decideOnce(c, reversed)
		if late || attempt == 50 || decision.Status == nil || decision.Status.Code != http.StatusServiceUnavailable {
			return decision
		}
	}
}

func decideOnce(c *Case, reversed bool) Decision {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var checks []Check
	access := &accessRules{rules: c.Access, checks: &checks}
	chain := start(ctx, c, access, reversed)

	before, attributes, interfaces := c.attributes(), c.attributes(), c.interfaces()
	var warnings recorder
	ctx = warning.WithWarningRecorder(ctx, &warnings)
	ctx = audit.WithAuditContext(ctx)
	must(audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, nil))
	err := chain.(admission.MutationInterface).Admit(ctx, attributes, interfaces)
	if err == nil {
		err = chain.(admission.ValidationInterface).Validate(ctx, attributes, interfaces)
	}
	decision := Decision{
		Allowed:          err == nil,
		Warnings:         warnings.texts,
		AuditAnnotations: audit.AuditContextFrom(ctx).GetEventAnnotations(),
		Checks:           checks,
	}
	if err != nil {
		status := responsewriters.ErrorToAPIStatus(err)
		decision.Status = &Status{status.Code, status.Reason, status.Message, status.Details}
	} else if object := versionedObject(attributes); compact(object) != compact(versionedObject(before)) {
		decision.Object = object
	}
	return decision
}

func versionedObject(attributes admission.Attributes) runtime.Object {
	object := attributes.GetObject()
	if _, ok := object.(*unstructured.Unstructured); ok || object == nil {
		return object
	}
	versioned, err := legacyscheme.Scheme.ConvertToVersion(object, attributes.GetKind().GroupVersion())
	must(err)
	return versioned
}

type recorder struct {
	texts []string
}

func (r *recorder) AddWarning(_, text string) {
	r.texts = append(r.texts, text)
}

// start makes the admission chain of kube-apiserver with its two plugins for policies, and waits until they are ready.
func start(ctx context.Context, c *Case, access authorizer.Authorizer, reversed bool) admission.Interface {
	objects := slices.Concat(c.policies, c.bindings)
	var dynamicObjects []runtime.Object
	listKinds := map[schema.GroupVersionResource]string{}
	for _, resource := range c.Resources {
		if resource.Subresource == "" && resource.Kind != "" {
			listKinds[parseResource(resource.Resource)] = parseKind(resource.Kind).Kind + "List"
		}
	}
	for _, object := range slices.Concat(c.namespaces, c.params) {
		dynamicObjects = append(dynamicObjects, object)
		if clientgoscheme.Scheme.Recognizes(object.GroupVersionKind()) {
			typed, err := clientgoscheme.Scheme.New(object.GroupVersionKind())
			must(err)
			must(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed))
			typed.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			objects = append(objects, typed)
		}
	}
	scheme := runtime.NewScheme()
	must(clientgoscheme.AddToScheme(scheme))
	client := &clientset{
		Clientset: fake.NewSimpleClientset(objects...),
		custom:    customDocuments(c.Resources),
		polled:    make(chan struct{}),
	}
	dynamicClient := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme, listKinds, dynamicObjects...)
	factory := informers.NewSharedInformerFactory(client, 0)

	validatingPlugin, err := validating.NewPlugin(nil)
	must(err)
	mutatingPlugin, err := mutating.NewPlugin(nil)
	must(err)
	sortHooks(validatingPlugin.Plugin, reversed, ctx.Done())
	sortHooks(mutatingPlugin.Plugin, reversed, ctx.Done())

	wiring := admission.PluginInitializers{
		initializer.New(client, dynamicClient, factory, access, utilfeature.DefaultFeatureGate,
			compatibility.DefaultBuildEffectiveVersion(), ctx.Done(), c.mapper()),
		exclusions{},
	}
	plugins := admission.NewPlugins()
	plugins.Register(mutating.PluginName, func(io.Reader) (admission.Interface, error) { return mutatingPlugin, nil })
	plugins.Register(validating.PluginName, func(io.Reader) (admission.Interface, error) { return validatingPlugin, nil })
	audited := admission.DecoratorFunc(func(plugin admission.Interface, _ string) admission.Interface {
		return admission.WithAudit(plugin)
	})
	chain, err := plugins.NewFromPlugins([]string{mutating.PluginName, validating.PluginName}, noConfiguration{}, wiring,
		audited)
	must(err)
	factory.Start(ctx.Done())
	if !mutatingPlugin.WaitForReady() || !validatingPlugin.WaitForReady() {
		panic("the plugins do not become ready")
	}
	<-client.polled
	return chain
}

type noConfiguration struct{}

func (noConfiguration) ConfigFor(string) (io.Reader, error) { return nil, nil }

type exclusions struct{}

func (exclusions) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsExcludedAdmissionResources); ok {
		wants.SetExcludedAdmissionResources(exclusion.Excluded())
	}
}

// sortHooks has the plugin take its policies, bindings and params in the order of their names. The plugin keeps them in
// maps, so their order is random in kube-apiserver. The plugin has no setter for its source.
func sortHooks[P, B runtime.Object, E generic.Evaluator](
	plugin *generic.Plugin[generic.PolicyHook[P, B, E]],
	reversed bool,
	done <-chan struct{},
) {
	type factory = func(informers.SharedInformerFactory, kubernetes.Interface, dynamic.Interface,
		meta.RESTMapper) generic.Source[generic.PolicyHook[P, B, E]]
	field := reflect.ValueOf(plugin).Elem().FieldByName("apiSourceFactory")
	place := (*factory)(unsafe.Pointer(field.UnsafeAddr()))
	original := *place
	*place = func(informerFactory informers.SharedInformerFactory, client kubernetes.Interface,
		dynamicClient dynamic.Interface, mapper meta.RESTMapper) generic.Source[generic.PolicyHook[P, B, E]] {
		return sortedSource[P, B, E]{
			original(informerFactory, client, dynamicClient, mapper), reversed, done,
		}
	}
}

type sortedSource[P, B runtime.Object, E generic.Evaluator] struct {
	generic.Source[generic.PolicyHook[P, B, E]]
	reversed bool
	done     <-chan struct{}
}

func (s sortedSource[P, B, E]) Hooks() []generic.PolicyHook[P, B, E] {
	hooks := slices.Clone(s.Source.Hooks())
	sortByName(hooks, s.reversed, func(hook generic.PolicyHook[P, B, E]) runtime.Object { return hook.Policy })
	for at := range hooks {
		hooks[at].Bindings = slices.Clone(hooks[at].Bindings)
		sortByName(hooks[at].Bindings, s.reversed, func(binding B) runtime.Object { return binding })
		if hooks[at].ParamInformer != nil {
			// The plugin waits a second only.
			cache.WaitForCacheSync(s.done, hooks[at].ParamInformer.Informer().HasSynced)
			hooks[at].ParamInformer = sortedInformer{hooks[at].ParamInformer, s.reversed}
		}
	}
	return hooks
}

func sortByName[T any](values []T, reversed bool, object func(T) runtime.Object) {
	name := func(value T) string {
		accessor, err := meta.Accessor(object(value))
		must(err)
		return accessor.GetNamespace() + "/" + accessor.GetName()
	}
	slices.SortFunc(values, func(a, b T) int { return strings.Compare(name(a), name(b)) })
	if reversed {
		slices.Reverse(values)
	}
}

type sortedInformer struct {
	informers.GenericInformer
	reversed bool
}

func (s sortedInformer) Lister() cache.GenericLister {
	return sortedLister{s.GenericInformer.Lister(), s.reversed}
}

type sortedLister struct {
	cache.GenericLister
	reversed bool
}

func (s sortedLister) List(selector labels.Selector) ([]runtime.Object, error) {
	return sorted(s.GenericLister, selector, s.reversed)
}

func (s sortedLister) ByNamespace(namespace string) cache.GenericNamespaceLister {
	return sortedNamespaceLister{s.GenericLister.ByNamespace(namespace), s.reversed}
}

type sortedNamespaceLister struct {
	cache.GenericNamespaceLister
	reversed bool
}

func (s sortedNamespaceLister) List(selector labels.Selector) ([]runtime.Object, error) {
	return sorted(s.GenericNamespaceLister, selector, s.reversed)
}

func sorted(lister cache.GenericNamespaceLister, selector labels.Selector, reversed bool) ([]runtime.Object, error) {
	objects, err := lister.List(selector)
	sortByName(objects, reversed, func(object runtime.Object) runtime.Object { return object })
	return objects, err
}

// clientset is the fake of client-go with the OpenAPI documents of the built-in kinds.
type clientset struct {
	*fake.Clientset
	custom map[string]openapi.GroupVersion
	once   sync.Once
	polled chan struct{}
}

func (c *clientset) Discovery() discovery.DiscoveryInterfaces {
	return documented{c.Clientset.Discovery(), c}
}

type documented struct {
	discovery.DiscoveryInterfaces
	client *clientset
}

func (d documented) OpenAPIV3() openapi.Client { return d }

func (d documented) Paths() (map[string]openapi.GroupVersion, error) {
	defer d.client.once.Do(func() { close(d.client.polled) })
	all := maps.Clone(documents())
	maps.Copy(all, d.client.custom)
	return all, nil
}

// customDocuments are the OpenAPI documents of the custom resources of a case, as kube-apiserver makes them of their
// definitions.
func customDocuments(resources []Resource) map[string]openapi.GroupVersion {
	found := map[string]openapi.GroupVersion{}
	for _, resource := range resources {
		kind := parseKind(resource.Kind)
		if resource.Subresource != "" || resource.WithoutSchema || kind.Group == "" {
			continue
		}
		text := resource.Schema
		if text == nil {
			text = json.RawMessage(`{"type": "object", "x-kubernetes-preserve-unknown-fields": true}`)
		}
		schema := &apiextensionsv1.CustomResourceValidation{}
		must(json.Unmarshal(text, &schema.OpenAPIV3Schema))
		scope := apiextensionsv1.ClusterScoped
		if resource.Namespaced {
			scope = apiextensionsv1.NamespaceScoped
		}
		document, err := builder.BuildOpenAPIV3(&apiextensionsv1.CustomResourceDefinition{
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: kind.Group,
				Names: apiextensionsv1.CustomResourceDefinitionNames{
					Plural:   parseResource(resource.Resource).Resource,
					Singular: strings.ToLower(kind.Kind),
					Kind:     kind.Kind,
					ListKind: kind.Kind + "List",
				},
				Scope: scope,
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
					{Name: kind.Version, Served: true, Storage: true, Schema: schema},
				},
			},
		}, kind.Version, builder.Options{})
		must(err)
		path := "apis/" + kind.GroupVersion().String()
		known, _ := found[path].(customDocument)
		found[path] = append(known, document)
	}
	return found
}

type customDocument []*spec3.OpenAPI

func (d customDocument) Schema(string) ([]byte, error) {
	merged, err := builder.MergeSpecsV3([]*spec3.OpenAPI(d)...)
	must(err)
	return json.Marshal(merged)
}

func (d customDocument) ServerRelativeURL() string { return "custom" }

// documents are the OpenAPI documents in the source of kube-apiserver.
var documents = sync.OnceValue(func() map[string]openapi.GroupVersion {
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	must(err)
	paths, err := filepath.Glob(strings.TrimSpace(string(folder)) + "/api/openapi-spec/v3/*_openapi.json")
	must(err)
	found := map[string]openapi.GroupVersion{}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), "_openapi.json")
		found[strings.ReplaceAll(name, "__", "/")] = document(path)
	}
	return found
})

type document string

func (d document) Schema(string) ([]byte, error) { return os.ReadFile(string(d)) }

func (d document) ServerRelativeURL() string { return filepath.Base(string(d)) }

// accessRules is the authorizer of a case.
type accessRules struct {
	rules  []Access
	checks *[]Check
}

func (a *accessRules) Authorize(
	_ context.Context,
	attributes authorizer.Attributes,
) (authorizer.Decision, string, error) {
	check := Check{
		User:        attributes.GetUser().GetName(),
		Groups:      attributes.GetUser().GetGroups(),
		Verb:        attributes.GetVerb(),
		Group:       attributes.GetAPIGroup(),
		Version:     attributes.GetAPIVersion(),
		Resource:    attributes.GetResource(),
		Subresource: attributes.GetSubresource(),
		Namespace:   attributes.GetNamespace(),
		Name:        attributes.GetName(),
		Path:        attributes.GetPath(),
	}
	if selector, err := attributes.GetFieldSelector(); err != nil {
		check.FieldSelector = "invalid: " + err.Error()
	} else {
		for _, requirement := range selector {
			check.FieldSelector += fmt.Sprintf("%s%s%s;", requirement.Field, requirement.Operator, requirement.Value)
		}
	}
	if selector, err := attributes.GetLabelSelector(); err != nil {
		check.LabelSelector = "invalid: " + err.Error()
	} else {
		for _, requirement := range selector {
			check.LabelSelector += requirement.String() + ";"
		}
	}
	*a.checks = append(*a.checks, check)
	for _, rule := range a.rules {
		if !rule.covers(check) {
			continue
		}
		var err error
		if rule.Error != "" {
			err = errors.New(rule.Error)
		}
		decision := map[string]authorizer.Decision{
			"allow": authorizer.DecisionAllow, "deny": authorizer.DecisionDeny, "noOpinion": authorizer.DecisionNoOpinion,
		}
		known, ok := decision[rule.Decision]
		if !ok {
			panic(rule.Decision + " is no decision")
		}
		return known, rule.Reason, err
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (r Access) covers(check Check) bool {
	equal := func(wanted *string, is string) bool { return wanted == nil || *wanted == is }
	return equal(r.User, check.User) && equal(r.Verb, check.Verb) && equal(r.Group, check.Group) &&
		equal(r.Resource, check.Resource) && equal(r.Subresource, check.Subresource) &&
		equal(r.Namespace, check.Namespace) && equal(r.Name, check.Name) && equal(r.Path, check.Path)
}

func (a *accessRules) ConditionsAwareAuthorize(
	ctx context.Context,
	attributes authorizer.Attributes,
) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attributes))
}

func (*accessRules) EvaluateConditions(
	context.Context,
	authorizer.ConditionsAwareDecision,
	authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

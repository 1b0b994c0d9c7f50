package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apiserver/pkg/admission"
	genericinitializer "k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/namespace"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	// PluginName is the name of this plugin.
	PluginName = "Gatepost"

	// behind names the plugin after which this one has its place.
	behind = "ValidatingAdmissionWebhook"
	// patchAnnotations is the prefix of annotations that hold patches; they are for the audit level Request.
	patchAnnotations = "patch.webhook.admission.k8s.io/"
	// ownAnnotations is the prefix of annotations that are of no hook.
	ownAnnotations = "gatepost.dev/"
	// revision is the annotation with the revision of the configuration that decided.
	revision = ownAnnotations + "revision"
	// otherVersions is the annotation with the versions in which Gatepost wants the request too.
	otherVersions = ownAnnotations + "other-versions"
	// objectEncoding is the annotation with the encoding in which Gatepost wants the objects of a request that it rejects
	// because they have another.
	objectEncoding = ownAnnotations + "object-encoding"
	// failedOpen is the prefix of the audit annotation of a call that failed and let the request pass.
	failedOpen = "failed-open.plugin.gatepost.dev/"
	// maxPatchOperations bounds a patch; 10,000 insertions at the head of one array take some 0.3 s.
	maxPatchOperations = 10_000
	// maxStatus is the largest HTTP status that a client understands.
	maxStatus = 599
	// maxLabelBytes bounds the labels of a namespace that travel with a review.
	maxLabelBytes = 8 << 10
)

// Register adds the plugin to those that a server knows. It runs once it is in the server's order too: see [Order].
func Register(plugins *admission.Plugins) {
	register(plugins, nil)
}

func register(plugins *admission.Plugins, initialization *Initialization) {
	plugins.Register(PluginName, func(from io.Reader) (admission.Interface, error) {
		configuration, err := readConfiguration(from)
		if err != nil {
			return nil, err
		}
		plugin, err := New(configuration)
		if err != nil {
			return nil, err
		}
		if initialization != nil {
			plugin.initialization = initialization
			initialization.plugin.Store(plugin)
		}
		return plugin, nil
	})
}

// Order returns a server's RecommendedPluginOrder with this plugin in its place: behind ValidatingAdmissionWebhook, and
// so before ResourceQuota, which must charge only what all others have admitted. At the end if the server has no such
// plugin. The slice given is not changed: a server's own is a global variable.
func Order(recommended []string) []string {
	at := slices.Index(recommended, behind)
	if at < 0 {
		return append(slices.Clone(recommended), PluginName)
	}
	return slices.Insert(slices.Clone(recommended), at+1, PluginName)
}

var (
	errPatchWhileValidating = errors.New("received invalid response: it changes the object, which is not supported for this operation")
	errCannotModify         = apierrors.NewInternalError(errors.New("Gatepost attempted to modify the object, which is not supported for this operation"))
)

// Plugin sends requests to a sidecar and applies its verdicts.
type Plugin struct {
	*admission.Handler
	client        *client
	index         *indexFollower
	configuration *Configuration
	namespaces    namespace.Matcher
	// nil unless the server stores objects before they are initialized.
	initialization *Initialization
}

var (
	_ admission.MutationInterface                         = &Plugin{}
	_ admission.ValidationInterface                       = &Plugin{}
	_ admission.InitializationValidator                   = &Plugin{}
	_ genericinitializer.WantsExternalKubeClientSet       = &Plugin{}
	_ genericinitializer.WantsExternalKubeInformerFactory = &Plugin{}
)

// New returns a plugin, which connects in the background.
func New(configuration *Configuration) (*Plugin, error) {
	client, err := newClient(configuration)
	if err != nil {
		return nil, fmt.Errorf("configuration of plugin %s: %w", PluginName, err)
	}
	operations := admission.NewHandler(admission.Create, admission.Update, admission.Delete, admission.Connect)
	index := &indexFollower{client: client, interval: pollInterval}
	go index.run(client.lifetime)
	return &Plugin{Handler: operations, client: client, index: index, configuration: configuration}, nil
}

// SetExternalKubeClientSet implements WantsExternalKubeClientSet: namespaces that the informer does not know yet are read
// with this client.
func (p *Plugin) SetExternalKubeClientSet(client kubernetes.Interface) {
	p.namespaces.Client = client
}

// SetExternalKubeInformerFactory implements WantsExternalKubeInformerFactory: the labels of a request's namespace travel
// with it.
func (p *Plugin) SetExternalKubeInformerFactory(factory informers.SharedInformerFactory) {
	informer := factory.Core().V1().Namespaces()
	p.namespaces.NamespaceLister = informer.Lister()
	p.SetReadyFunc(informer.Informer().HasSynced)
}

// ValidateInitialization implements InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	return p.namespaces.Validate()
}

// Admit implements MutationInterface: the mutating phase of a CREATE or UPDATE, and all of a CONNECT, whose options the
// server reads once admission is through.
func (p *Plugin) Admit(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	method := mutate
	switch attributes.GetOperation() {
	case admission.Create, admission.Update:
	case admission.Connect:
		method = review
	default:
		return nil
	}
	if p.need(method, attributes, objects) == noCall {
		return nil
	}
	if p.initialization.stores(attributes) {
		if err := checkList(attributes.GetKind().GroupKind(), attributes.GetName(), attributes.GetObject()); err != nil {
			return err
		}
	}
	reinvocation := attributes.GetReinvocationContext()
	if reinvocation.IsReinvoke() && p.configuration.ReinvocationPolicy == admissionregistrationv1.NeverReinvocationPolicy {
		return nil
	}
	// The list was written in the first round, and is not the client's own.
	if reinvocation.IsReinvoke() && p.initialization.concerns(attributes) {
		return nil
	}
	first, err := p.encodeRequest(attributes, versionOf(attributes), objects, false)
	if err != nil {
		return err
	}
	// In the second round hooks are called if the object has changed since they saw it.
	seen, ok := reinvocation.Value(PluginName).([]byte)
	if ok && reinvocation.IsReinvoke() && bytes.Equal(seen, first.message.object) {
		return nil
	}
	isPatched := false
	err = p.inEachVersion(ctx, method, first, objects, func(one *encodedRequest, response *admissionv1.AdmissionResponse) error {
		patched, err := p.patched(ctx, method, one.request, objects, one.message, response)
		if err != nil || patched == nil {
			return err
		}
		isPatched = true
		if !apiequality.Semantic.DeepEqual(one.request.object, patched) {
			reinvocation.SetShouldReinvoke()
		}
		objects.GetObjectDefaulter().Default(patched)
		if err := objects.GetObjectConvertor().Convert(patched, attributes.GetObject(), nil); err != nil {
			return apierrors.NewInternalError(err)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case !isPatched:
		reinvocation.SetValue(PluginName, first.message.object)
	case p.configuration.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy:
		// As it comes back from the server's own type, which may fill in more.
		if after, err := newRequest(attributes, versionOf(attributes), objects); err == nil {
			after.stored = first.request.stored
			if seen, err := after.encode(after.object); err == nil {
				reinvocation.SetValue(PluginName, seen)
			}
		}
	}
	return nil
}

// Validate implements ValidationInterface: the validating phase of a CREATE or UPDATE, and all of a DELETE.
func (p *Plugin) Validate(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	method := validate
	switch attributes.GetOperation() {
	case admission.Delete:
		method = review
	case admission.Connect:
		return nil
	default:
		if p.initialization.stores(attributes) {
			completed, err := whenInitialized(attributes)
			if err != nil || completed == nil {
				return err
			}
			attributes = completed
		}
	}
	need := p.need(method, attributes, objects)
	if need == noCall {
		return nil
	}
	first, err := p.encodeRequest(attributes, versionOf(attributes), objects, method == validate && need == inProtobuf)
	if err != nil {
		return err
	}
	return p.inEachVersion(ctx, method, first, objects, func(one *encodedRequest, response *admissionv1.AdmissionResponse) error {
		if len(response.Patch) > 0 {
			return p.failed(ctx, method, one.request, errPatchWhileValidating)
		}
		return nil
	})
}

// need returns what the request needs of the sidecar: nothing if its own rules, or the sidecar's, do not name it.
func (p *Plugin) need(method method, attributes admission.Attributes, objects admission.ObjectInterfaces) need {
	if rules.IsExemptAdmissionConfigurationResource(attributes) {
		return noCall
	}
	// Whatever the rules are now, nobody else checks who changes the list.
	if p.initialization.concerns(attributes) {
		return inJSON
	}
	need := p.index.need(method, attributes)
	if need == noCall || !p.isConfigured(attributes, objects) {
		return noCall
	}
	return need
}

// isConfigured reports whether the rules of the configuration name the request.
func (p *Plugin) isConfigured(attributes admission.Attributes, objects admission.ObjectInterfaces) bool {
	if len(p.configuration.Rules) == 0 {
		return true
	}
	if p.matches(attributes) {
		return true
	}
	// As matchPolicy: Equivalent, the default of a webhook.
	mapper := objects.GetEquivalentResourceMapper()
	if mapper == nil {
		return false
	}
	return slices.ContainsFunc(mapper.EquivalentResourcesFor(attributes.GetResource(), attributes.GetSubresource()), func(other schema.GroupVersionResource) bool {
		return p.matches(inResource{attributes, other})
	})
}

func (p *Plugin) matches(attributes admission.Attributes) bool {
	return slices.ContainsFunc(p.configuration.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		matcher := rules.Matcher{Rule: rule, Attr: attributes}
		return matcher.Matches()
	})
}

// A request as if it had come for an equivalent of its resource.
type inResource struct {
	admission.Attributes
	resource schema.GroupVersionResource
}

func (r inResource) GetResource() schema.GroupVersionResource { return r.resource }

// ask returns the sidecar's verdict if it admits the request, an error if the request is rejected, and neither if the
// call has failed and the failure policy is Ignore.
func (p *Plugin) ask(ctx context.Context, method method, round *round, request *request, message *message) (*admissionv1.AdmissionResponse, error) {
	bounded, cancel := context.WithDeadline(ctx, round.deadline)
	defer cancel()
	response, err := p.askOnce(bounded, method, round, request, message)
	if errors.Is(err, errWantsJSON) {
		// Once: a message in JSON has no such answer.
		round.wantsJSON = true
		if message, err = newMessage(request, false); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		response, err = p.askOnce(bounded, method, round, request, message)
	}
	if err != nil {
		return nil, p.failed(ctx, method, request, err)
	}
	for key, value := range response.AuditAnnotations {
		// What Gatepost itself says of a request it says of each version.
		if key == otherVersions || request.isConverted() && strings.HasPrefix(key, ownAnnotations) {
			continue
		}
		level := auditinternal.LevelMetadata
		if strings.HasPrefix(key, patchAnnotations) {
			level = auditinternal.LevelRequest
		}
		_ = request.AddAnnotationWithLevel(key, value, level)
	}
	for _, text := range response.Warnings {
		warning.AddWarning(ctx, "", text)
	}
	if !response.Allowed {
		return nil, rejection(response.Result)
	}
	return response, nil
}

// askOnce returns the sidecar's answer to one message; [errWantsJSON] if it is no verdict.
func (p *Plugin) askOnce(ctx context.Context, method method, round *round, request *request, message *message) (*admissionv1.AdmissionResponse, error) {
	message.versions = round.versions
	message.auditID = auditID(ctx)
	message.namespaceLabels = p.namespaceLabels(ctx, request)
	var err error
	if round.connection, err = p.client.sameConnection(ctx, round.connection); err != nil {
		return nil, err
	}
	response, err := p.client.call(ctx, round.connection, method, message)
	if err == nil {
		err = verify(message, response)
	}
	if err == nil && message.isProtobuf && !response.Allowed && response.AuditAnnotations[objectEncoding] == "JSON" {
		err = errWantsJSON
	}
	return response, err
}

// verify reports what makes an answer unusable.
func verify(message *message, response *admissionv1.AdmissionResponse) error {
	switch {
	case response == nil:
		return errors.New("received invalid response: it has no response")
	case response.UID != message.uid:
		return fmt.Errorf("received invalid response: expected response.uid=%q, got %q", message.uid, shorten(string(response.UID)))
	case response.Allowed && len(response.Patch) > 0 && (response.PatchType == nil || *response.PatchType != admissionv1.PatchTypeJSONPatch):
		return errors.New("received invalid response: its patch is not a JSONPatch")
	}
	return nil
}

// failed applies the failure policy to a call that brought no verdict.
func (p *Plugin) failed(ctx context.Context, method method, request *request, cause error) error {
	if ctx.Err() != nil {
		return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	}
	if errors.Is(cause, errLate) {
		cause = fmt.Errorf("no answer within %s", p.configuration.Timeout.Duration)
	}
	call := strings.TrimPrefix(string(method), "/")
	var unreadable requestError
	if p.configuration.FailurePolicy == admissionregistrationv1.Ignore && !errors.As(cause, &unreadable) && !p.initialization.concerns(request) {
		klog.FromContext(ctx).Error(cause, "Failed calling Gatepost, failing open", "call", call, "address", p.client.address)
		key := failedOpen + call[strings.LastIndexByte(call, '/')+1:]
		_ = request.AddAnnotation(key, shorten(cause.Error()))
		return nil
	}
	klog.FromContext(ctx).Error(cause, "Failed calling Gatepost, failing closed", "call", call, "address", p.client.address)
	return apierrors.NewInternalError(fmt.Errorf("failed calling Gatepost (%s): %w", call, cause))
}

// rejection is what the client gets. Upstream: k8s.io/apiserver/pkg/admission/plugin/webhook/errors ToStatusErr, without
// its prefix, since the message names the hook already.
func rejection(result *metav1.Status) error {
	if result == nil {
		result = &metav1.Status{}
	}
	said := *result
	if said.Code < http.StatusBadRequest {
		said.Code = http.StatusBadRequest
	}
	if said.Code > maxStatus {
		said.Code = http.StatusInternalServerError
	}
	said.Status = metav1.StatusFailure
	if said.Message == "" {
		said.Message = "Gatepost denied the request without explanation"
	}
	return &apierrors.StatusError{ErrStatus: said}
}

// auditID returns the identifier that the request has in the audit log, unless it has bytes that do not travel: clients may
// choose it.
func auditID(ctx context.Context) string {
	id := audit.GetAuditIDTruncated(ctx)
	if strings.ContainsFunc(id, func(r rune) bool { return r < '!' || r > '~' }) {
		return ""
	}
	return id
}

// namespaceLabels returns the labels of the request's namespace, encoded; nil if it has none, if they are more than
// [maxLabelBytes], or if they are not known. Gatepost then looks for them itself.
func (p *Plugin) namespaceLabels(ctx context.Context, attributes admission.Attributes) []byte {
	name := attributes.GetNamespace()
	if attributes.GetResource().Group == "" && attributes.GetResource().Resource == "namespaces" {
		// Those of a namespace that is written are in the object.
		if attributes.GetSubresource() == "" && attributes.GetOperation() != admission.Delete {
			return nil
		}
		name = attributes.GetName()
	}
	if p.namespaces.NamespaceLister == nil || name == "" {
		return nil
	}
	namespace, err := p.namespaces.GetNamespace(ctx, name)
	if err != nil {
		return nil
	}
	if message := labelsMessage(namespace.Labels); len(message) <= maxLabelBytes {
		return message
	}
	return nil
}

// patched returns the object with the verdict's patch applied, as kube-apiserver applies that of a webhook, by its own
// library; nil if there is nothing to apply. Upstream: k8s.io/apiserver/pkg/admission/plugin/webhook/mutating
// dispatcher.go.
func (p *Plugin) patched(ctx context.Context, method method, request *request, objects admission.ObjectInterfaces, message *message, response *admissionv1.AdmissionResponse) (runtime.Object, error) {
	if len(response.Patch) == 0 {
		return nil, nil
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		return nil, p.failed(ctx, method, request, fmt.Errorf("received undecodable patch: %s", shorten(err.Error())))
	}
	if len(patch) == 0 {
		return nil, nil
	}
	// The library moves an array for each insertion, and cannot be interrupted.
	if len(patch) > maxPatchOperations {
		return nil, p.failed(ctx, method, request, fmt.Errorf("received a patch of %d operations, more than %d", len(patch), maxPatchOperations))
	}
	if request.object == nil {
		return nil, errCannotModify
	}
	text, err := patch.Apply(message.object)
	if err == nil && request.stored {
		text, err = listAsAnnotation(text)
	}
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	// Custom resources have no Go type.
	var object runtime.Object = &unstructured.Unstructured{}
	if _, ok := request.object.(*unstructured.Unstructured); !ok {
		if object, err = objects.GetObjectCreater().New(request.kind); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
	}
	serializer := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, objects.GetObjectCreater(), objects.GetObjectTyper(), jsonserializer.SerializerOptions{})
	if object, _, err = serializer.Decode(text, nil, object); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return object, nil
}

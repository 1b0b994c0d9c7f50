package admission

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

const (
	// maxVersions bounds the versions of a resource of which the sidecar is told; it takes no more.
	maxVersions = 64
	// maxVersionsBytes bounds their list: all headers of a call have 16 KiB, of which labels may take up most.
	maxVersionsBytes = 2 << 10
	// maxRounds bounds how often a request is sent anew because the configuration changed between two of its versions.
	maxRounds = 3
)

var errUnsettled = errors.New("the configuration changed between the reviews of two versions, again and again")

// A version is one in which the server has the resource of a request.
type version struct {
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
}

// versionOf returns the version in which the client made the request.
func versionOf(attributes admission.Attributes) version {
	return version{attributes.GetResource(), attributes.GetKind()}
}

// isConverted reports whether the request is in another version than the client's.
func (r *request) isConverted() bool { return r.resource != r.GetResource() }

// An encodedRequest is a request in one version, with the message that carries it.
type encodedRequest struct {
	request *request
	message *message
}

func (p *Plugin) encodeRequest(attributes admission.Attributes, in version, objects admission.ObjectInterfaces, wantsProtobuf bool) (*encodedRequest, error) {
	request, err := newRequest(attributes, in, objects)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	request.stored = p.initialization.stores(attributes)
	message, err := newMessage(request, wantsProtobuf)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return &encodedRequest{request, message}, nil
}

// A phase is one phase of a request, in each version in which the sidecar wants it.
type phase struct {
	*Plugin
	method     method
	attributes admission.Attributes
	objects    admission.ObjectInterfaces
	// Is called with each answer that admits the request.
	apply func(*encodedRequest, *admissionv1.AdmissionResponse) error
	// Of all rounds and versions together.
	deadline time.Time
	// The versions of which the sidecar is told.
	served []schema.GroupVersionResource
	// Whether the request may be sent anew.
	mayRepeat bool
	// The object as it was before the first patch, if the request may be sent anew.
	original runtime.Object
}

// A round asks about a request once in each version.
type round struct {
	deadline time.Time
	// The list that is sent of them.
	versions string
	// Two connections may lead to two replicas, which name one configuration by two revisions.
	connection  *connection
	annotations annotations
	// Whether the sidecar has asked for the objects in JSON.
	wantsJSON bool
}

// inEachVersion asks about a request as the client made it, and then in each version in which the sidecar wants it too:
// that of hooks under matchPolicy: Equivalent that do not take the client's. Each hook is called in one of them, the one
// in which the server would call it as a webhook. It calls a function with each answer that admits the request.
//
// All versions are decided by one revision of the configuration, as a hook that names another version from then on would
// be called in neither; otherwise it begins anew, with the object as it was.
func (p *Plugin) inEachVersion(ctx context.Context, method method, first *encodedRequest, objects admission.ObjectInterfaces, apply func(*encodedRequest, *admissionv1.AdmissionResponse) error) error {
	attributes := first.request.Attributes
	if !p.WaitForReady() {
		return admission.NewForbidden(attributes, errors.New("not yet ready to handle request"))
	}
	phase := &phase{
		Plugin: p, method: method, attributes: attributes, objects: objects, apply: apply,
		deadline: time.Now().Add(p.configuration.Timeout.Duration), served: equivalents(attributes, objects),
	}
	one := first
	for count := 1; ; count++ {
		round := &round{deadline: phase.deadline, versions: versionsText(phase.served)}
		isSettled, err := phase.askEach(ctx, round, one)
		if err == nil && !isSettled {
			switch {
			case count == maxRounds:
				isSettled, err = true, p.failed(ctx, method, one.request, errUnsettled)
			case phase.isOver(ctx):
				isSettled, err = true, p.failed(ctx, method, one.request, errLate)
			}
		}
		if err != nil || isSettled {
			round.annotations.addTo(ctx, attributes)
			return err
		}
		phase.restore()
		if one, err = p.encodeRequest(attributes, versionOf(attributes), objects, one.message.isProtobuf && !round.wantsJSON); err != nil {
			return err
		}
	}
}

// admit applies an answer that admits the request.
func (p *phase) admit(one *encodedRequest, response *admissionv1.AdmissionResponse) error {
	if object := p.attributes.GetObject(); p.mayRepeat && p.method == mutate && object != nil && p.original == nil && len(response.Patch) > 0 {
		p.original = object.DeepCopyObject()
	}
	return p.apply(one, response)
}

// askEach asks in each version. It reports false if the answers are of several configurations: also then each has been heard,
// so that a denial counts.
func (p *phase) askEach(ctx context.Context, round *round, first *encodedRequest) (isSettled bool, err error) {
	response, err := p.send(ctx, round, first)
	if err != nil || response == nil {
		return true, err
	}
	made := p.attributes.GetResource()
	wanted, err := wantedVersions(response.AuditAnnotations[otherVersions], p.served, made)
	if err != nil {
		return true, p.failed(ctx, p.method, first.request, err)
	}
	p.mayRepeat = len(wanted) > 0
	if err := p.admit(first, response); err != nil {
		return true, err
	}
	isSettled = true
	for _, resource := range wanted {
		// Upstream: k8s.io/apiserver/pkg/admission/plugin/webhook/generic ShouldCallHook.
		kind := p.objects.GetEquivalentResourceMapper().KindFor(resource, p.attributes.GetSubresource())
		if kind.Empty() {
			return true, apierrors.NewInternalError(fmt.Errorf("unable to convert to %v: unknown kind", resource))
		}
		if p.isOver(ctx) {
			return true, p.failed(ctx, p.method, first.request, errLate)
		}
		// From the server's own type, with the patches of the versions before.
		converted, err := p.encodeRequest(p.attributes, version{resource, kind}, p.objects, first.message.isProtobuf && !round.wantsJSON)
		if err != nil {
			return true, err
		}
		other, err := p.send(ctx, round, converted)
		if err != nil {
			return true, err
		}
		// Without an answer the failure policy has let this version pass.
		if other == nil {
			continue
		}
		if err := p.admit(converted, other); err != nil {
			return true, err
		}
		isSettled = isSettled && other.AuditAnnotations[revision] == response.AuditAnnotations[revision]
	}
	return isSettled, nil
}

func (p *phase) send(ctx context.Context, round *round, one *encodedRequest) (*admissionv1.AdmissionResponse, error) {
	one.request.Attributes = inRound{p.attributes, &round.annotations, one.request.resource}
	return p.ask(ctx, p.method, round, one.request, one.message)
}

// isOver reports whether there is no time left for another version.
func (p *phase) isOver(ctx context.Context) bool {
	return ctx.Err() != nil || !time.Now().Before(p.deadline)
}

// restore takes back what the patches of a round have changed. The server holds the object itself, so it stays where it is.
func (p *phase) restore() {
	if p.original != nil {
		reflect.ValueOf(p.attributes.GetObject()).Elem().Set(reflect.ValueOf(p.original.DeepCopyObject()).Elem())
	}
}

// equivalents returns the resource of the request in each version in which the server has it, the client's included, in
// the server's order; nothing if that is not known or too long.
func equivalents(attributes admission.Attributes, objects admission.ObjectInterfaces) []schema.GroupVersionResource {
	mapper := objects.GetEquivalentResourceMapper()
	if mapper == nil {
		return nil
	}
	served := mapper.EquivalentResourcesFor(attributes.GetResource(), attributes.GetSubresource())
	if len(served) > maxVersions || len(versionsText(served)) > maxVersionsBytes {
		return nil
	}
	return served
}

// versionsText is how versions are written in the metadata of a call, and in its answer.
func versionsText(resources []schema.GroupVersionResource) string {
	texts := make([]string, len(resources))
	for n, resource := range resources {
		texts[n] = versionText(resource)
	}
	return strings.Join(texts, ",")
}

func versionText(resource schema.GroupVersionResource) string {
	return resource.Group + "/" + resource.Version + "/" + resource.Resource
}

// wantedVersions reads which of the versions the sidecar wants besides the client's, in the server's order.
func wantedVersions(text string, served []schema.GroupVersionResource, made schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	if text == "" {
		return nil, nil
	}
	if sent := len(versionsText(served)); len(text) > sent {
		return nil, fmt.Errorf("received invalid response: it wants the request in versions of %d bytes, of which %d were sent", len(text), sent)
	}
	texts := strings.Split(text, ",")
	wanted := slices.Clone(served)
	wanted = slices.DeleteFunc(wanted, func(resource schema.GroupVersionResource) bool {
		return resource == made || !slices.Contains(texts, versionText(resource))
	})
	if len(wanted) != len(texts) {
		return nil, fmt.Errorf("received invalid response: it wants the request in versions that the server does not have: %q", shorten(text))
	}
	return wanted, nil
}

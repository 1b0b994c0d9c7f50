package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

const (
	// maxVersions bounds the versions of a resource of which the sidecar is told; it takes no more.
	maxVersions = 64
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

func encodeRequest(attributes admission.Attributes, in version, objects admission.ObjectInterfaces) (*encodedRequest, error) {
	request, err := newRequest(attributes, in, objects)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	message, err := newMessage(request)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return &encodedRequest{request, message}, nil
}

// inEachVersion asks about a request as the client made it, and then in each version in which the sidecar wants it too:
// that of hooks under matchPolicy: Equivalent that do not take the client's. Each hook is called in one of them, the one
// in which the server would call it as a webhook. It calls a function with each answer that admits the request.
//
// All versions are decided by one revision of the configuration, as a hook that names another version from then on would
// be called in neither; otherwise it begins anew.
func (p *Plugin) inEachVersion(ctx context.Context, method method, first *encodedRequest, objects admission.ObjectInterfaces, apply func(*encodedRequest, *admissionv1.AdmissionResponse) error) error {
	attributes := first.request.Attributes
	served := equivalents(attributes, objects)
	listed := versionsText(served)
	send := func(one *encodedRequest) (*admissionv1.AdmissionResponse, error) {
		one.message.versions = listed
		response, err := p.ask(ctx, method, one.request, one.message)
		if err == nil && response != nil {
			err = apply(one, response)
		}
		return response, err
	}
	one := first
	for round := 1; ; round++ {
		response, err := send(one)
		if err != nil || response == nil {
			return err
		}
		wanted, err := wantedVersions(response.AuditAnnotations[otherVersions], served, attributes.GetResource())
		if err != nil {
			return p.failed(ctx, method, one.request, err)
		}
		isSettled := true
		for _, resource := range wanted {
			// Upstream: k8s.io/apiserver/pkg/admission/plugin/webhook/generic ShouldCallHook.
			kind := objects.GetEquivalentResourceMapper().KindFor(resource, attributes.GetSubresource())
			if kind.Empty() {
				return apierrors.NewInternalError(fmt.Errorf("unable to convert to %v: unknown kind", resource))
			}
			// From the server's own type, with the patches of the versions before.
			converted, err := encodeRequest(attributes, version{resource, kind}, objects)
			if err != nil {
				return err
			}
			other, err := send(converted)
			if err != nil {
				return err
			}
			// Without an answer the failure policy has let this version pass.
			if other != nil && other.AuditAnnotations[revision] != response.AuditAnnotations[revision] {
				isSettled = false
				break
			}
		}
		if isSettled {
			return nil
		}
		if round == maxRounds {
			return p.failed(ctx, method, one.request, errUnsettled)
		}
		if one, err = encodeRequest(attributes, versionOf(attributes), objects); err != nil {
			return err
		}
	}
}

// equivalents returns the resource of the request in each version in which the server has it, the client's included, in
// the server's order; nothing if that is not known.
func equivalents(attributes admission.Attributes, objects admission.ObjectInterfaces) []schema.GroupVersionResource {
	mapper := objects.GetEquivalentResourceMapper()
	if mapper == nil {
		return nil
	}
	served := mapper.EquivalentResourcesFor(attributes.GetResource(), attributes.GetSubresource())
	if len(served) > maxVersions {
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

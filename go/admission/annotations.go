package admission

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/klog/v2"
)

// validationFailures is the annotation with a list of what policies would have denied.
const validationFailures = "validation.policy.admission.k8s.io/validation_failure"

// An annotation is for the audit log from a level on.
type annotation struct {
	value string
	level auditinternal.Level
}

// The annotations of a round, of all versions. A request takes no second value for a key, and keys count the hooks of each
// version from the beginning.
type annotations map[string]annotation

// add has both values of a key that is there already: in one list, or the second under a key that names its version.
func (a *annotations) add(key string, added annotation, in schema.GroupVersionResource) {
	if *a == nil {
		*a = annotations{}
	}
	for {
		before, ok := (*a)[key]
		if !ok {
			break
		}
		if before == added {
			return
		}
		if key == validationFailures {
			if both, ok := joined(before.value, added.value); ok {
				added.value = both
				break
			}
		}
		key += "_" + in.Version
	}
	(*a)[key] = added
}

// joined returns one list in JSON of two.
func joined(texts ...string) (string, bool) {
	var all []json.RawMessage
	for _, text := range texts {
		var some []json.RawMessage
		if err := json.Unmarshal([]byte(text), &some); err != nil {
			return "", false
		}
		all = append(all, some...)
	}
	text, err := json.Marshal(all)
	return string(text), err == nil
}

// addTo adds the annotations to the request itself.
func (a annotations) addTo(ctx context.Context, attributes admission.Attributes) {
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if err := attributes.AddAnnotationWithLevel(key, a[key].value, a[key].level); err != nil {
			klog.FromContext(ctx).V(2).Info("Gatepost's audit annotation is left out", "key", key, "reason", err)
		}
	}
}

// A request in a version whose annotations wait for the end of the round.
type inRound struct {
	admission.Attributes
	annotations *annotations
	resource    schema.GroupVersionResource
}

func (r inRound) AddAnnotationWithLevel(key, value string, level auditinternal.Level) error {
	r.annotations.add(key, annotation{value, level}, r.resource)
	return nil
}

func (r inRound) AddAnnotation(key, value string) error {
	return r.AddAnnotationWithLevel(key, value, auditinternal.LevelMetadata)
}

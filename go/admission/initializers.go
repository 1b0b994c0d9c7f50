package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// InitializersAnnotation holds the [Initializers] of an object that is stored before it is initialized, in JSON. Gatepost
// reads and writes it as metadata.initializers, which Kubernetes' own types no longer have. An object without it is
// initialized.
const InitializersAnnotation = "init.gatepost.dev/initializers"

// Initializers is the state of an object that is not initialized.
type Initializers struct {
	// Pending are those that must still act, in order.
	Pending []PendingInitializer `json:"pending,omitempty"`
	// Result is the reason for which the initialization has failed. Such an object is deleted.
	Result *metav1.Status `json:"result,omitempty"`
	// Creator is the user who made the object.
	Creator *authenticationv1.UserInfo `json:"creator,omitempty"`
}

// PendingInitializer is an initializer that must act.
type PendingInitializer struct {
	Name string `json:"name"`
}

// InitializersOf returns the state of an object; nil if it is initialized.
func InitializersOf(object runtime.Object) (*Initializers, error) {
	text, ok := listOf(object)
	if !ok {
		return nil, nil
	}
	var list Initializers
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", InitializersAnnotation, err)
	}
	return &list, nil
}

// IsUnfinished reports whether an object is stored, or is to be, before it is initialized.
func IsUnfinished(object runtime.Object) bool {
	_, ok := listOf(object)
	return ok
}

func listOf(object runtime.Object) (string, bool) {
	if object == nil {
		return "", false
	}
	metadata, err := meta.Accessor(object)
	if err != nil {
		return "", false
	}
	text, ok := metadata.GetAnnotations()[InitializersAnnotation]
	return text, ok
}

// set writes the list into an object.
func (i *Initializers) set(object runtime.Object) error {
	metadata, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	annotations := metadata.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[InitializersAnnotation] = string(text)
	metadata.SetAnnotations(annotations)
	return nil
}

const listField = "initializers"

// isList reports whether the text of an annotation is an object in JSON. Another is no list, but makes an object unfinished
// all the same.
func isList(text string) bool {
	return json.Valid([]byte(text)) && strings.HasPrefix(strings.TrimSpace(text), "{")
}

// checkList refuses an object whose list is none.
func checkList(kind schema.GroupKind, name string, object runtime.Object) error {
	text, ok := listOf(object)
	if !ok || isList(text) {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(InitializersAnnotation)
	return apierrors.NewInvalid(kind, name, field.ErrorList{field.Invalid(path, shorten(text), "must be an object in JSON, with the field pending")})
}

// listAsField moves the list of an encoded object from its annotation to metadata.initializers. One that is no object in
// JSON becomes a string there, which Gatepost refuses: it takes null for no list.
func listAsField(object []byte) ([]byte, error) {
	return editMetadata(object, func(metadata, annotations map[string]json.RawMessage) error {
		delete(metadata, listField)
		written, ok := annotations[InitializersAnnotation]
		if !ok {
			return nil
		}
		delete(annotations, InitializersAnnotation)
		var text string
		if err := json.Unmarshal(written, &text); err != nil {
			return err
		}
		if metadata[listField] = json.RawMessage(text); !isList(text) {
			metadata[listField] = written
		}
		return nil
	})
}

// listAsAnnotation moves it back. An annotation that a hook has written is no list.
func listAsAnnotation(object []byte) ([]byte, error) {
	return editMetadata(object, func(metadata, annotations map[string]json.RawMessage) error {
		delete(annotations, InitializersAnnotation)
		field, ok := metadata[listField]
		delete(metadata, listField)
		if !ok || bytes.Equal(field, []byte("null")) {
			return nil
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, field); err != nil {
			return err
		}
		text, err := json.Marshal(compact.String())
		annotations[InitializersAnnotation] = text
		return err
	})
}

// editMetadata changes the metadata of an encoded object; all else stays as it is.
func editMetadata(object []byte, edit func(metadata, annotations map[string]json.RawMessage) error) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, err
	}
	inside := func(outer map[string]json.RawMessage, name string) (map[string]json.RawMessage, error) {
		inner := map[string]json.RawMessage{}
		if text, ok := outer[name]; ok && !bytes.Equal(text, []byte("null")) {
			return inner, json.Unmarshal(text, &inner)
		}
		return inner, nil
	}
	metadata, err := inside(fields, "metadata")
	if err != nil {
		return nil, err
	}
	annotations, err := inside(metadata, "annotations")
	if err != nil {
		return nil, err
	}
	if err := edit(metadata, annotations); err != nil {
		return nil, err
	}
	delete(metadata, "annotations")
	if len(annotations) > 0 {
		if metadata["annotations"], err = json.Marshal(annotations); err != nil {
			return nil, err
		}
	}
	if fields["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

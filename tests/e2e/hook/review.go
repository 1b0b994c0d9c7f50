package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

// review is as much of an AdmissionReview as the hooks look at.
type review struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Request    *request `json:"request"`
}

type request struct {
	UID       string          `json:"uid"`
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	Operation string          `json:"operation"`
	Object    json.RawMessage `json:"object"`
	OldObject json.RawMessage `json:"oldObject"`
}

// readReview reads the whole body; real hooks do, and callers notice who does not.
func readReview(r *http.Request) (*review, []byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil, err
	}
	var review review
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, nil, err
	}
	if !strings.HasPrefix(review.APIVersion, "admission.k8s.io/") || review.Kind != "AdmissionReview" || review.Request == nil {
		return nil, nil, errors.New("not an AdmissionReview with a request")
	}
	return &review, body, nil
}

// script is what the object asks of this hook: of what is stored where nothing new comes with the request.
func (r *request) script(hook string) (script, error) {
	object := r.Object
	if len(object) == 0 || bytes.Equal(object, []byte("null")) {
		object = r.OldObject
	}
	var annotated struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(object, &annotated); err != nil {
		return script{}, err
	}
	read, err := readScript(annotated.Metadata.Annotations[scriptPrefix+hook])
	if err == nil && read.On != "" && read.On != r.Operation {
		return readScript("")
	}
	return read, err
}

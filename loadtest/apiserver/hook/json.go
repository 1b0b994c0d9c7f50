package main

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// review is what is decoded of an AdmissionReview. The object is passed over, which takes reading it all the same.
type review struct {
	Request struct {
		UID string `json:"uid"`
	} `json:"request"`
}

// answer is an AdmissionReview with a response.
type answer struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Response   response `json:"response"`
}

type response struct {
	UID       string `json:"uid"`
	Allowed   bool   `json:"allowed"`
	PatchType string `json:"patchType,omitempty"`
	// Go writes bytes in base64.
	Patch []byte `json:"patch,omitempty"`
}

// label is what a hook that patches does to an object without labels.
const label = `[{"op": "add", "path": "/metadata/labels", "value": {"measured": "yes"}}]`

// task is what a JSON hook does before it allows.
type task struct {
	// It waits so long, as one does that asks a registry or a database.
	wait time.Duration
	// It patches the object.
	patches bool
}

// serveJSON serves AdmissionReview v1 with net/http as it comes: HTTP/2 where the caller offers it over TLS, else 1.1.
func serveJSON(listener net.Listener, config *tls.Config, asked *atomic.Uint64, task task) error {
	handler := http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		var review review
		if err := json.Unmarshal(body, &review); err != nil || review.Request.UID == "" {
			http.Error(writer, "no AdmissionReview with a request", http.StatusBadRequest)
			return
		}
		asked.Add(1)
		if task.wait > 0 {
			time.Sleep(task.wait)
		}
		response := response{UID: review.Request.UID, Allowed: true}
		if task.patches {
			response.PatchType, response.Patch = "JSONPatch", []byte(label)
		}
		writer.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(writer).Encode(answer{
			APIVersion: "admission.k8s.io/v1",
			Kind:       "AdmissionReview",
			Response:   response,
		})
	})
	server := &http.Server{Handler: handler, TLSConfig: config}
	if config == nil {
		return server.Serve(listener)
	}
	return server.ServeTLS(listener, "", "")
}

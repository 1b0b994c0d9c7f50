package main

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync/atomic"
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
	UID     string `json:"uid"`
	Allowed bool   `json:"allowed"`
}

// serveJSON serves AdmissionReview v1 with net/http as it comes: HTTP/2 where the caller offers it over TLS, else 1.1.
func serveJSON(listener net.Listener, config *tls.Config, asked *atomic.Uint64) error {
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
		writer.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(writer).Encode(answer{
			APIVersion: "admission.k8s.io/v1",
			Kind:       "AdmissionReview",
			Response:   response{UID: review.Request.UID, Allowed: true},
		})
	})
	server := &http.Server{Handler: handler, TLSConfig: config}
	if config == nil {
		return server.Serve(listener)
	}
	return server.ServeTLS(listener, "", "")
}

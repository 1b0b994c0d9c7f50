package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// server is a kube-apiserver and the user that its folder names.
type server struct {
	folder string
	url    string
	token  string
	client *http.Client
}

func open(folder string) (*server, error) {
	read := func(name string) (string, error) {
		text, err := os.ReadFile(filepath.Join(folder, name))
		return strings.TrimSpace(string(text)), err
	}
	url, err := read("url")
	if err != nil {
		return nil, err
	}
	token, err := read("token")
	if err != nil {
		return nil, err
	}
	authority, err := read("ca.crt")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(authority)) {
		return nil, errors.New("ca.crt holds no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	return &server{folder, url, token, &http.Client{Transport: transport, Timeout: 40 * time.Second}}, nil
}

// call is one request to the apiserver.
type call struct {
	method      string
	path        string
	body        any
	contentType string
	headers     map[string]string
	// values are headers that may have several values.
	values map[string][]string
	// code is what it has to come to sooner or later; 0 where it is sent once. See until.
	code int
	// before is what has to be written first; it is no case of its own.
	before *call
}

// answer is what of its answer concerns admission.
type answer struct {
	code       int
	status     status
	warnings   []string
	retryAfter string
	audit      string
	text       []byte
}

// status is metav1.Status, as far as a hook can say something in it.
type status struct {
	Status  string          `json:"status"`
	Reason  string          `json:"reason"`
	Message string          `json:"message"`
	Details json.RawMessage `json:"details"`
}

func (s *server) send(call call) (answer, error) {
	var body io.Reader
	switch given := call.body.(type) {
	case nil:
	case string:
		body = strings.NewReader(given)
	default:
		text, err := json.Marshal(given)
		if err != nil {
			return answer{}, err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequest(call.method, s.url+call.path, body)
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", call.contentType)
	if call.contentType == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for key, value := range call.headers {
		request.Header.Add(key, value)
	}
	for key, values := range call.values {
		for _, value := range values {
			request.Header.Add(key, value)
		}
	}
	response, err := s.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	got := answer{
		code: response.StatusCode, warnings: response.Header.Values("Warning"),
		retryAfter: response.Header.Get("Retry-After"), audit: response.Header.Get("Audit-Id"), text: text,
	}
	// An answer that is not a Status is the object itself, which hooks that only validate have no part in.
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(text, &kind); err == nil && kind.Kind == "Status" {
		if err := json.Unmarshal(text, &got.status); err != nil {
			return got, fmt.Errorf("%s %s: %w", call.method, call.path, err)
		}
	}
	return got, nil
}

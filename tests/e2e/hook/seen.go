package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
)

// seen is what the hooks were asked.
type seen struct {
	on     bool
	lock   sync.Mutex
	asking []asking
	// judged has a line for each judgement; nil where nobody counts them.
	judged *os.File
}

// judge notes that this hook has judged this request: one write a line, which the system appends as a whole.
func (s *seen) judge(hook string, asked *request) error {
	if s.judged == nil {
		return nil
	}
	_, err := fmt.Fprintf(s.judged, "%s %s %s\n", hook, asked.Operation, asked.Name)
	return err
}

// asking is one question to one hook, with what of its envelope a hook can tell.
type asking struct {
	Hook        string `json:"hook"`
	Protocol    string `json:"protocol"`
	ContentType string `json:"contentType"`
	Accept      string `json:"accept"`
	UserAgent   string `json:"userAgent"`
	Query       string `json:"query"`
	// Headers is the names of all others.
	Headers []string        `json:"headers"`
	Body    json.RawMessage `json:"body"`
}

func (s *seen) add(hook string, r *http.Request, body []byte) {
	if !s.on || !json.Valid(body) {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.asking = append(s.asking, asking{
		Hook: hook, Protocol: r.Proto, ContentType: r.Header.Get("Content-Type"), Accept: r.Header.Get("Accept"),
		UserAgent: r.Header.Get("User-Agent"), Query: r.URL.RawQuery, Headers: others(r.Header), Body: body,
	})
}

// others is the headers that asking has no field for.
func others(header http.Header) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if !slices.Contains([]string{"Content-Type", "Accept", "User-Agent"}, name) {
			names = append(names, name)
		}
	}
	return names
}

func (s *seen) drain(w http.ResponseWriter, _ *http.Request) {
	s.lock.Lock()
	asking := s.asking
	s.asking = nil
	s.lock.Unlock()
	lines := json.NewEncoder(w)
	for _, one := range asking {
		_ = lines.Encode(one)
	}
}

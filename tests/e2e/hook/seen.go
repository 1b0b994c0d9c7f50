package main

import (
	"encoding/json"
	"net/http"
	"sync"
)

// seen is what the hooks were asked.
type seen struct {
	on     bool
	lock   sync.Mutex
	asking []asking
}

// asking is one question to one hook, with what of its envelope a hook can tell.
type asking struct {
	Hook        string          `json:"hook"`
	Protocol    string          `json:"protocol"`
	ContentType string          `json:"contentType"`
	Accept      string          `json:"accept"`
	UserAgent   string          `json:"userAgent"`
	Query       string          `json:"query"`
	Body        json.RawMessage `json:"body"`
}

func (s *seen) add(hook string, r *http.Request, body []byte) {
	if !s.on || !json.Valid(body) {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.asking = append(s.asking, asking{
		Hook: hook, Protocol: r.Proto, ContentType: r.Header.Get("Content-Type"), Accept: r.Header.Get("Accept"),
		UserAgent: r.Header.Get("User-Agent"), Query: r.URL.RawQuery, Body: body,
	})
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

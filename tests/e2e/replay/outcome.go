package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"sort"
	"strings"
)

// outcome is what one case came to: lines by field, so that every field is compared in the same way.
type outcome struct {
	Case   string              `json:"case"`
	Fields map[string][]string `json:"fields"`
}

// changing is what is different in every run, and what stands for it.
var changing = []struct {
	text *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "UID"},
	{regexp.MustCompile(`\bgenerated-[a-z0-9]{5}\b`), "generated-XXXXX"},
	{regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`gatepost/\d+\.\d+\.\d+`), "gatepost/VERSION"},
	{regexp.MustCompile(`stream ID \d+`), "stream ID N"},
	{regexp.MustCompile(`\bsha256:[0-9a-f]{16}\b`), "sha256:DIGEST"},
}

func stable(text string) string {
	for _, one := range changing {
		text = one.text.ReplaceAllString(text, one.name)
	}
	return text
}

func newOutcome(name string, got answer, audit map[string]string, asked []asking) outcome {
	fields := map[string][]string{"code": {fmt.Sprint(got.code)}}
	set := func(field string, values ...string) {
		for _, value := range values {
			if value != "" {
				fields[field] = append(fields[field], stable(value))
			}
		}
	}
	set("status", got.status.Status)
	set("reason", got.status.Reason)
	set("message", got.status.Message)
	set("details", string(got.status.Details))
	set("retry-after", got.retryAfter)
	set("warnings", got.warnings...)
	for key, value := range audit {
		// Written only when it took long, and that is not a difference in what was decided.
		if !strings.HasPrefix(key, "apiserver.latency.k8s.io/") {
			set("audit", key+"="+value)
		}
	}
	// How often the same was asked is the luck of the moment: a deletion is judged again when another copy of the object
	// turns out to be newer.
	questions := map[string]bool{}
	for _, one := range asked {
		lines := one.lines()
		sort.Strings(lines)
		if question := strings.Join(lines, "\n"); !questions[question] {
			questions[question] = true
			set("asked", lines...)
		}
	}
	for _, lines := range fields {
		sort.Strings(lines)
	}
	return outcome{name, fields}
}

// asking is what ../hook/seen.go writes.
type asking struct {
	Hook        string         `json:"hook"`
	Protocol    string         `json:"protocol"`
	ContentType string         `json:"contentType"`
	Accept      string         `json:"accept"`
	UserAgent   string         `json:"userAgent"`
	Query       string         `json:"query"`
	Headers     []string       `json:"headers"`
	Body        map[string]any `json:"body"`
}

// lines is the question leaf by leaf, less what is different each time.
func (a *asking) lines() []string {
	if request, ok := a.Body["request"].(map[string]any); ok {
		delete(request, "uid")
		for _, which := range []string{"object", "oldObject"} {
			if object, ok := request[which].(map[string]any); ok {
				if metadata, ok := object["metadata"].(map[string]any); ok {
					for _, key := range []string{"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"} {
						delete(metadata, key)
					}
					fields, _ := metadata["managedFields"].([]any)
					for _, one := range fields {
						if one, ok := one.(map[string]any); ok {
							delete(one, "time")
						}
					}
				}
			}
		}
	}
	lines := []string{
		"protocol=" + a.Protocol, "content-type=" + a.ContentType, "accept=" + a.Accept,
		"user-agent=" + a.UserAgent, "query=" + a.Query,
	}
	for _, name := range a.Headers {
		lines = append(lines, "header="+name)
	}
	lines = append(lines, leaves("", a.Body)...)
	for i := range lines {
		lines[i] = a.Hook + " " + lines[i]
	}
	return lines
}

// leaves is one line for each value that is not itself a non-empty collection.
func leaves(path string, value any) []string {
	var lines []string
	switch value := value.(type) {
	case map[string]any:
		for key, one := range value {
			lines = append(lines, leaves(path+"/"+key, one)...)
		}
		if len(value) > 0 {
			return lines
		}
	case []any:
		for i, one := range value {
			lines = append(lines, leaves(fmt.Sprintf("%s/%d", path, i), one)...)
		}
		if len(value) > 0 {
			return lines
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		text = []byte(err.Error())
	}
	// A large value says no more than its beginning when two of them differ.
	if len(text) > 300 {
		text = fmt.Appendf(text[:200:200], "... (%d bytes, sum %x)", len(text), sum(text))
	}
	return append(lines, path+"="+string(text))
}

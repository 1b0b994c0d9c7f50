package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// auditLog reads an apiserver's audit log as it grows.
type auditLog struct {
	reader *bufio.Reader
	rest   []byte
	found  map[string]map[string]string
}

func openAudit(cluster string) (*auditLog, error) {
	file, err := os.Open(filepath.Join(cluster, "audit.log"))
	if err != nil {
		return nil, err
	}
	return &auditLog{reader: bufio.NewReaderSize(file, 1<<20), found: map[string]map[string]string{}}, nil
}

// read takes in what has been written since.
func (l *auditLog) read() error {
	for {
		line, err := l.reader.ReadBytes('\n')
		l.rest = append(l.rest, line...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var event struct {
			AuditID     string            `json:"auditID"`
			Stage       string            `json:"stage"`
			Annotations map[string]string `json:"annotations"`
		}
		if err := json.Unmarshal(l.rest, &event); err != nil {
			return fmt.Errorf("audit.log: %w", err)
		}
		l.rest = l.rest[:0]
		if event.Stage == "ResponseComplete" || event.Stage == "Panic" {
			l.found[event.AuditID] = event.Annotations
		}
	}
}

// annotations waits for the event of this request: the line may come after the answer.
func (l *auditLog) annotations(id string) (map[string]string, error) {
	for until := time.Now().Add(5 * time.Second); ; {
		if annotations, here := l.found[id]; here {
			return annotations, nil
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("audit.log has no event %s", id)
		}
		if err := l.read(); err != nil {
			return nil, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// audited looks for an annotation that has all of this somewhere in its key or its value.
func audited(cluster string, words []string) error {
	log, err := openAudit(cluster)
	if err != nil {
		return err
	}
	// The line may come after the answer.
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if err := log.read(); err != nil {
			return err
		}
		for _, annotations := range log.found {
			for key, value := range annotations {
				whole := key + "=" + value
				if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(whole, word) }) {
					return nil
				}
			}
		}
	}
	return fmt.Errorf("audit.log has no annotation with %q", words)
}

package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// scriptPrefix and the hook's name are the annotation that tells a hook what to do: JSON, the fields of
// AdmissionReview.response that the answer shall have, and beside them what makes a script. None: the hook allows.
const scriptPrefix = "e2e.gatepost.dev/"

// script is what a hook does with one review.
type script struct {
	// On, when set, is the only operation that the script is for: anything else is allowed.
	On string `json:"on"`
	// Delay comes before everything else.
	Delay string `json:"delay"`
	// Do, when set, is one way to misbehave: see misbehave.
	Do string `json:"do"`
	// response is everything else of the annotation.
	response map[string]any
}

func readScript(annotation string) (script, error) {
	read := script{response: map[string]any{}}
	if annotation == "" {
		return read, nil
	}
	if err := json.Unmarshal([]byte(annotation), &read); err != nil {
		return read, err
	}
	if err := json.Unmarshal([]byte(annotation), &read.response); err != nil {
		return read, err
	}
	delete(read.response, "delay")
	delete(read.response, "do")
	delete(read.response, "on")
	return read, nil
}

// wait sleeps as long as the script says; false when the caller left before.
func (s script) wait(r *http.Request) (bool, error) {
	if s.Delay == "" {
		return true, nil
	}
	delay, err := time.ParseDuration(s.Delay)
	if err != nil {
		return false, err
	}
	select {
	case <-time.After(delay):
		return true, nil
	case <-r.Context().Done():
		return false, nil
	}
}

// answer is the review that goes back.
func (s script) answer(asked *review) map[string]any {
	response := map[string]any{"uid": asked.Request.UID, "allowed": true}
	for key, value := range s.response {
		response[key] = value
	}
	return map[string]any{"apiVersion": asked.APIVersion, "kind": asked.Kind, "response": response}
}

func answerJSON(w http.ResponseWriter, r *http.Request, seen *seen) {
	asked, body, err := readReview(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	hook := r.PathValue("hook")
	seen.add(hook, r, body)
	script, err := asked.Request.script(hook)
	if err != nil {
		http.Error(w, fmt.Sprintf("the script for %s: %v", hook, err), http.StatusBadRequest)
		return
	}
	if here, err := script.wait(r); err != nil || !here {
		http.Error(w, fmt.Sprint("the script's delay: ", err), http.StatusBadRequest)
		return
	}
	answer := script.answer(asked)
	if err := seen.judge(hook, asked.Request); err != nil {
		http.Error(w, fmt.Sprint("noting the judgement: ", err), http.StatusInternalServerError)
		return
	}
	if script.Do != "" {
		if err := misbehave(w, r, script.Do, answer); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
		return
	}
	write(w, http.StatusOK, answer)
}

// misbehave does one of the things that hooks do when they are broken.
func misbehave(w http.ResponseWriter, r *http.Request, what string, answer map[string]any) error {
	switch what {
	case "hang":
		<-r.Context().Done()
	case "close":
		// The connection, or with HTTP/2 the stream, ends without an answer.
		panic(http.ErrAbortHandler)
	case "bad-http":
		// No HTTP at all. Only a connection in HTTP/1.1 can be had.
		hijacker, ok := w.(http.Hijacker)
		if !ok {
			return errors.New("bad-http needs -http1")
		}
		connection, _, err := hijacker.Hijack()
		if err != nil {
			return err
		}
		_, _ = io.WriteString(connection, "bad-http")
		return connection.Close()
	case "garbage":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "<html>not what anyone asked for</html>")
	case "empty":
		w.WriteHeader(http.StatusOK)
	case "500":
		http.Error(w, "this hook is broken", http.StatusInternalServerError)
	case "503-status":
		write(w, http.StatusServiceUnavailable, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure",
			"message": "this hook has said why", "reason": "ServiceUnavailable", "code": 503})
	case "404":
		http.NotFound(w, r)
	case "redirect":
		// To itself, as another hook: kube-apiserver posts the review once more, and that one says yes.
		http.Redirect(w, r, "/yes/elsewhere", http.StatusTemporaryRedirect)
	case "redirect-get":
		http.Redirect(w, r, "/yes/elsewhere", http.StatusFound)
	case "retry-date":
		w.Header().Set("Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT")
		http.Error(w, "not now", http.StatusServiceUnavailable)
	case "gzip":
		text, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		_, _ = packed.Write(text)
		return packed.Close()
	case "odd-type":
		w.Header().Set("Content-Type", "application/json, text/plain")
		return json.NewEncoder(w).Encode(answer)
	case "many-headers":
		for n := range 150 {
			w.Header().Set(fmt.Sprintf("X-Header-%d", n), "x")
		}
		write(w, http.StatusOK, answer)
	case "twice":
		// The second response says nothing of what the first one has said.
		text, err := json.Marshal(answer["response"])
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(w, `{"apiVersion":%q,"kind":%q,"response":%s,"response":{"warnings":["twice"]}}`, answer["apiVersion"], answer["kind"], text)
	case "documents":
		text, err := json.Marshal(answer["response"])
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(w, "apiVersion: %s\nkind: %s\nresponse: %s\n---\n[\n", answer["apiVersion"], answer["kind"], text)
	case "odd-request":
		answer["request"] = map[string]any{"userInfo": map[string]any{"groups": "one"}}
		write(w, http.StatusOK, answer)
	case "wrong-uid":
		answer["response"].(map[string]any)["uid"] = "00000000-0000-0000-0000-000000000000"
		write(w, http.StatusOK, answer)
	case "wrong-version":
		answer["apiVersion"] = "admission.k8s.io/v2"
		write(w, http.StatusOK, answer)
	case "no-kind":
		delete(answer, "apiVersion")
		delete(answer, "kind")
		write(w, http.StatusOK, answer)
	case "no-response":
		delete(answer, "response")
		write(w, http.StatusOK, answer)
	default:
		return errors.New("a script that does " + what)
	}
	return nil
}

func answerYes(w http.ResponseWriter, r *http.Request) {
	asked, _, err := readReview(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	write(w, http.StatusOK, script{}.answer(asked))
}

func answerNo(w http.ResponseWriter, r *http.Request, seen *seen) {
	asked, body, err := readReview(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	hook := r.PathValue("hook")
	seen.add(hook, r, body)
	no := script{response: map[string]any{"allowed": false, "status": map[string]any{"code": 403, "message": "never"}}}
	write(w, http.StatusOK, no.answer(asked))
}

func write(w http.ResponseWriter, code int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text)
}

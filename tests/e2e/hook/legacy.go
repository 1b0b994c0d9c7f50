package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// answerLegacy speaks the contract of the first proposal for admission webhooks: a review comes with its question in
// `spec`; 200 or 204 lets it pass, 400 is a no with the reason in `status`. Its scripts are those of the other hooks:
// `allowed` and `status` count, the rest has no place in that contract.
func answerLegacy(w http.ResponseWriter, r *http.Request, seen *seen) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	hook := r.PathValue("hook")
	seen.add(hook, r, body)
	var review struct {
		Spec    *request `json:"spec"`
		Request *request `json:"request"`
	}
	// 500 and not 400: a 400 would be a verdict.
	if err := json.Unmarshal(bytes.TrimSpace(body), &review); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	question := review.Spec
	if question == nil {
		question = review.Request
	}
	if question == nil {
		http.Error(w, "a review without a question", http.StatusInternalServerError)
		return
	}
	script, err := question.script(hook)
	if err != nil {
		http.Error(w, fmt.Sprintf("the script for %s: %v", hook, err), http.StatusInternalServerError)
		return
	}
	if allowed, said := script.response["allowed"].(bool); !said || allowed {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	write(w, http.StatusBadRequest, map[string]any{
		"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "status": script.response["status"],
	})
}

// Writes ../odd.json: odd patches, and what the library that kube-apiserver uses makes of them.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// A row of the table. All JSON is kept as text, so that nothing of its spelling is lost.
type row struct {
	Document string `json:"document"`
	Patch    string `json:"patch"`
	// result, error, undecodable or panic
	Outcome string `json:"outcome"`
	Result  string `json:"result,omitempty"`
}

func judge(document, patch string) (r row) {
	r = row{Document: document, Patch: patch}
	defer func() {
		if recover() != nil {
			r.Outcome, r.Result = "panic", ""
		}
	}()
	decoded, err := jsonpatch.DecodePatch([]byte(patch))
	if err != nil {
		r.Outcome = "undecodable"
		return r
	}
	result, err := decoded.Apply([]byte(document))
	if err != nil {
		r.Outcome = "error"
		return r
	}
	r.Outcome, r.Result = "result", string(result)
	return r
}

func quoted(text string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		panic(err)
	}
	return string(bytes.TrimSpace(out.Bytes()))
}

func main() {
	// As kube-apiserver sets it (--json-patch-max-copy-bytes).
	jsonpatch.AccumulatedCopySizeLimit = 3 << 20
	var rows []row
	for _, c := range single() {
		rows = append(rows, judge(c[0], c[1]))
	}
	for _, c := range curated {
		rows = append(rows, judge(c[0], c[1]))
	}
	var out bytes.Buffer
	out.WriteString("[\n")
	for i, r := range rows {
		if i > 0 {
			out.WriteString(",\n")
		}
		fmt.Fprintf(&out, `{"document":%s,"patch":%s,"outcome":%s`, quoted(r.Document), quoted(r.Patch), quoted(r.Outcome))
		if r.Outcome == "result" {
			fmt.Fprintf(&out, `,"result":%s`, quoted(r.Result))
		}
		out.WriteString("}")
	}
	out.WriteString("\n]\n")
	if err := os.WriteFile("../odd.json", out.Bytes(), 0o644); err != nil {
		panic(err)
	}
}

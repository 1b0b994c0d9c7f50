package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// shorten keeps what tells two values apart in most cases.
func shorten(text string) string {
	letters := []rune(text)
	if len(letters) > 420 {
		return string(letters[:380]) + fmt.Sprintf("... (%d letters)", len(letters))
	}
	return text
}

func cell(text string) string {
	if text == "" {
		return "none"
	}
	text = strings.NewReplacer("|", "\\|", "\n", "\\n", "\t", "\\t", "`", "'").Replace(shorten(text))
	return "`" + text + "`"
}

// ranks is the fields, from what decides a request to what only its hooks see.
var ranks = []string{"code", "status", "reason", "message", "details", "retry-after", "warnings", "object", "audit", "asked"}

// rank is where a field's differences stand in the table: a field that is in no list comes last.
func rank(field string) int {
	if i := slices.Index(ranks, field); i >= 0 {
		return i
	}
	return len(ranks)
}

// writeReport is the table, sorted by how much a difference matters: differences that one expectation explains are one
// row.
func writeReport(w io.Writer, cases int, modes []string, found []difference) {
	fmt.Fprintf(w, "# Direct or through Gatepost\n\n")
	fmt.Fprintf(w, "%d requests to kube-apiserver, each with the same hooks: called by kube-apiserver itself,\n"+
		"and by Gatepost, registered in %d ways: %s.\n", cases, len(modes), strings.Join(modes, " and "))
	fmt.Fprintf(w, "Compared leaf by leaf: status code, reason, message, details, Retry-After, warnings, audit\n"+
		"annotations, and what the hooks got. Everything else was the same in all of them.\n")
	fmt.Fprintf(w, "Written by `tests/e2e/run.sh`; `ADDRESS` stands for a port that changes.\n\n")

	type row struct {
		first        difference
		modes, cases []string
	}
	var rows []*row
	unexpected := 0
	for _, one := range found {
		if one.expected == nil {
			unexpected++
		}
		i := slices.IndexFunc(rows, func(r *row) bool { return one.expected != nil && r.first.expected == one.expected })
		if i < 0 {
			rows = append(rows, &row{first: one})
			i = len(rows) - 1
		}
		if !slices.Contains(rows[i].modes, one.mode) {
			rows[i].modes = append(rows[i].modes, one.mode)
		}
		if !slices.Contains(rows[i].cases, one.name) {
			rows[i].cases = append(rows[i].cases, one.name)
		}
	}
	if len(rows) == 0 {
		fmt.Fprintln(w, "No difference.")
		return
	}
	if unexpected > 0 {
		fmt.Fprintf(w, "**%d of these differences are not expected.**\n\n", unexpected)
	}
	slices.SortStableFunc(rows, func(a, b *row) int {
		return cmp.Compare(rank(a.first.field), rank(b.first.field))
	})
	fmt.Fprintln(w, "| field | direct | through Gatepost | in | why | what to do |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- |")
	for _, one := range rows {
		in := fmt.Sprintf("%s: %s", strings.Join(one.modes, ", "), one.cases[0])
		if len(one.cases) > 1 {
			in = fmt.Sprintf("%s: %d cases, for instance %s", strings.Join(one.modes, ", "), len(one.cases), one.cases[0])
		}
		why, do := "**not expected**", "find out why"
		if one.first.expected != nil {
			why, do = one.first.expected.why, one.first.expected.do
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n",
			one.first.field, cell(one.first.direct), cell(one.first.through), in, why, do)
	}
}

package main

import (
	"strings"
	"testing"
)

func TestEachCombinationHasANameOfItsOwn(t *testing.T) {
	if _, err := readCombinations(combinationsTable); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, one := range cases() {
		if seen[one.name] {
			t.Errorf("twice: %s", one.name)
		}
		seen[one.name] = true
	}
	if len(combinations()) < 300 {
		t.Errorf("only %d combinations", len(combinations()))
	}
}

func TestARowThatCannotBeReadIsFound(t *testing.T) {
	for _, row := range []string{"denies\t*", "denies\tCREATE/XML\t{}", "denies\t*\t{"} {
		if _, err := readCombinations(row); err == nil {
			t.Errorf("taken: %q", row)
		}
	}
}

func TestYAMLIsInBlockStyle(t *testing.T) {
	text := yaml(map[string]any(configMap("a").label("b", "c: d")), "")
	if !strings.Contains(text, "\n\"metadata\":\n  \"labels\":\n    \"b\": \"c: d\"\n  \"name\": \"a\"") {
		t.Errorf("%s", text)
	}
}

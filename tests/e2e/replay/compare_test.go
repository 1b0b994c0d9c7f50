package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func expectations(t *testing.T, rows string) []*expectation {
	t.Helper()
	file := filepath.Join(t.TempDir(), "expected.tsv")
	if err := os.WriteFile(file, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := readExpectations(file)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestOnlyWhatIsExpectedHasAReason(t *testing.T) {
	rows := "# a comment\n" +
		"*\tdenied*\tmessage\t(hook .*)\touter: $1\tprefixed\n" +
		"api\t*\taudit\tgone=.*\t-\tdropped\n" +
		"*\t*\taudit\t-\tnew=.*\tadded\n"
	for _, one := range []struct {
		name, mode, field string
		direct, through   []string
		// The reason of each difference, empty where nobody expected it.
		want []string
	}{
		{"allowed", "api", "code", []string{"201"}, []string{"201"}, nil},
		{"allowed", "api", "code", []string{"201"}, []string{"500"}, []string{""}},
		{"denied", "api", "message", []string{"hook says no"}, []string{"outer: hook says no"}, []string{"prefixed"}},
		{"denied", "api", "message", []string{"hook says no"}, []string{"hook says no"}, []string{""}},
		{"denied", "api", "message", []string{"hook says no"}, []string{"outer: hook says yes"}, []string{""}},
		{"denied", "api", "message", []string{"hook says no"}, nil, []string{""}},
		{"allowed", "api", "message", []string{"hook says no"}, []string{"outer: hook says no"}, []string{""}},
		{"allowed", "api", "audit", []string{"gone=1", "kept=1"}, []string{"kept=1"}, []string{"dropped"}},
		{"allowed", "static", "audit", []string{"gone=1"}, nil, []string{""}},
		{"allowed", "static", "audit", nil, []string{"new=1", "newer=1"}, []string{"added", ""}},
		{"allowed", "api", "warnings", []string{"twice", "twice"}, []string{"twice"}, []string{""}},
	} {
		var got []string
		for _, found := range compareField(expectations(t, rows), one.mode, one.name, one.field, one.direct, one.through) {
			why := ""
			if found.expected != nil {
				why = found.expected.why
			}
			got = append(got, why)
		}
		if !slices.Equal(got, one.want) {
			t.Errorf("%s %s %v %v: %q, not %q", one.mode, one.field, one.direct, one.through, got, one.want)
		}
	}
}

func TestWhatIsExpectedAndNotSeenIsTold(t *testing.T) {
	all := expectations(t, "*\t*\tmessage\thook (.*)\touter $1\tprefixed\n")
	compareField(all, "api", "denied", "message", []string{"hook no"}, []string{"hook no"})
	if all[0].used {
		t.Error("a row that did not come true counts as used")
	}
	compareField(all, "api", "denied", "message", []string{"hook no"}, []string{"outer no"})
	if !all[0].used {
		t.Error("a row that came true does not count as used")
	}
}

func TestCasesHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, one := range cases() {
		if seen[one.name] {
			t.Errorf("%s: twice", one.name)
		}
		seen[one.name] = true
	}
}

package main

import (
	"io"
	"testing"
)

func TestAWriteThatOneHookHasNotJudgedIsFound(t *testing.T) {
	asked := map[string]int{"one CREATE a": 1, "two CREATE a": 2, "one CREATE b": 1}
	var found tally
	for _, name := range []string{"CREATE a", "CREATE b"} {
		found.add(streamed{Write: name, Hooks: []string{"one", "two"}, Want: 201, Code: 201}, asked, io.Discard)
	}
	if found.unjudged != 1 || found.once != 2 || found.more != 1 || found.surprises != 0 {
		t.Errorf("%+v", found)
	}
}

func TestAWriteThatShouldBeRefusedAndIsNotIsFound(t *testing.T) {
	var found tally
	found.add(streamed{Write: "CREATE a", Want: 418, Code: 201}, nil, io.Discard)
	found.add(streamed{Write: "CREATE b", Want: 418, Code: 418}, nil, io.Discard)
	if found.surprises != 1 || found.refused != 1 {
		t.Errorf("%+v", found)
	}
}

func TestCreationsThatAreJudgedTwiceAreFoundWhereTheyMayNotBe(t *testing.T) {
	var found tally
	for range 20 {
		found.add(streamed{Write: "CREATE a", Hooks: []string{"one"}, Want: 201, Code: 201}, map[string]int{"one CREATE a": 2}, io.Discard)
	}
	if err := found.told("trial", false); err != nil {
		t.Error(err)
	}
	if found.told("trial", true) == nil {
		t.Error("taken")
	}
}

func TestAWriteThatFailedIsNotMissedOnlyWhereSomebodyWasKilled(t *testing.T) {
	for _, killed := range []bool{false, true} {
		found := tally{killed: killed}
		found.add(streamed{Write: "CREATE a", Hooks: []string{"one"}, Want: 201, Code: 500}, nil, io.Discard)
		found.add(streamed{Write: "CREATE b", Hooks: []string{"one"}, Want: 201, Code: 201}, nil, io.Discard)
		want := tally{killed: true, writes: 2, failed: 1, unjudged: 1}
		if killed && (found.failed != want.failed || found.unjudged != want.unjudged || found.surprises != 0) {
			t.Errorf("%+v", found)
		}
		if !killed && (found.surprises != 1 || found.unjudged != 2) {
			t.Errorf("%+v", found)
		}
	}
}

package main

import "fmt"

var documents = []struct {
	text  string
	paths []string
}{
	{`{"a":{"b":[1,{"c":null},"x"],"n":null},"l":[10,20,30],"s":"t"}`, []string{
		"", "/", "/a", "/a/b", "/a/b/1/c", "/a/n", "/a/n/x", "/a/z", "/z/y", "/s/0", "/l/0", "/l/1", "/l/2", "/l/3",
		"/l/4", "/l/-", "/l/-1", "/l/-3", "/l/-4", "/l/-5", "/l/+1", "/l/01", "/l/-0", "/l/1.0", "/l/", "/l/x",
		"/l/99999999999999999999", "l/1", "x/l/1", "/a/b/-2/c", "/a/b/-1/c", "/a/b/3/c",
	}},
	{`{"":{"":1,"/":2,"~":3,"~1":4,"a~2":5},"é":"\u00e9","\u0061b":6}`, []string{
		"/", "//", "///", "//~1", "//~0", "//~01", "//~", "//a~2", "//a~02", "/é", "/ab", "/\\u0061b", "/\\u00e9",
	}},
	{`{"d":1,"d":{"e":1,"e":2},"f":3,"d":{"e":4,"e":5,"g":6}}`, []string{"/d", "/d/e", "/d/g", "/f"}},
	{`{}`, []string{"", "/", "/a", "/a/b"}},
	{`{"l":[[1,2],{"a":3}],"s":null}`, []string{"/l/0/0", "/l/0/-", "/l/1/a", "/l/2", "/l/-1/a", "/l/-2/-1", "/s", "/s/a"}},
}

// One operation of each kind for each path.
func single() [][2]string {
	var cases [][2]string
	for _, document := range documents {
		for _, path := range document.paths {
			add := func(form string) {
				cases = append(cases, [2]string{document.text, fmt.Sprintf(form, path)})
			}
			add(`[{"op":"add","path":"%s","value":{"v":[1]}}]`)
			add(`[{"op":"remove","path":"%s"}]`)
			add(`[{"op":"replace","path":"%s","value":[2]}]`)
			add(`[{"op":"test","path":"%s","value":null}]`)
			add(`[{"op":"test","path":"%s","value":20}]`)
			add(`[{"op":"copy","from":"%s","path":"/new"}]`)
			add(`[{"op":"move","from":"%s","path":"/l/1"}]`)
			add(`[{"op":"copy","from":"/s","path":"%s"}]`)
		}
	}
	return cases
}

var curated = [][2]string{
	// Documents that are a patch, and others.
	{`{"a":1}`, `null`},
	{`{"a":1}`, `[]`},
	{`{"a":1}`, `{}`},
	{`{"a":1}`, `{"op":"add","path":"/b","value":1}`},
	{`{"a":1}`, `"x"`},
	{`{"a":1}`, `5`},
	{`{"a":1}`, ` [ ] `},
	{`{"a":1}`, `[] x`},
	{`{"a":1}`, `[`},
	{`{"a":1}`, `[null]`},
	{`{"a":1}`, `[[]]`},
	{`{"a":1}`, `[5]`},
	{`{"a":1}`, `["add"]`},
	{`{"a":1}`, `[{}]`},
	{`{"a":1}`, `[{"op":"test","path":"/a","value":2},5]`},
	{`{"a":1}`, `[{"op":"ADD","path":"/b","value":1}]`},
	{`{"a":1}`, `[{"op":"unknown","path":"/b","value":1}]`},
	{`{"a":1}`, `[{"op":5,"path":"/b","value":1}]`},
	{`{"a":1}`, `[{"op":["add"],"path":"/b","value":1}]`},
	{`{"a":1}`, `[{"Op":"add","path":"/b","value":1}]`},
	{`{"a":1}`, `[{"op":"add","Path":"/b","value":1}]`},
	{`{"a":1}`, `[{"op":"add","path":5,"value":1}]`},
	{`{"a":1}`, `[{"op":"add","path":null,"value":1}]`},
	{`{"a":1}`, `[{"op":"add","value":1}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b"}]`},
	{`{"a":1}`, `[{"op":"replace","path":"/b"}]`},
	{`{"a":1}`, `[{"op":"replace","path":"/a"}]`},
	{`{"a":1}`, `[{"op":"test","path":"/a"}]`},
	{`{"a":null}`, `[{"op":"test","path":"/a"}]`},
	{`{"a":1}`, `[{"op":"test","path":"/b"}]`},
	{`{"a":1}`, `[{"op":"move","path":"/b"}]`},
	{`{"a":1}`, `[{"op":"move","from":null,"path":"/b"}]`},
	{`{"a":1}`, `[{"op":"move","from":5,"path":"/b"}]`},
	{`{"a":1}`, `[{"op":"copy","from":"/a"}]`},
	{`{"a":1}`, `[{"op":"add","op":"remove","path":"/b","path":"/a","value":1}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b","value":1,"value":null}]`},
	{`{"a":1}`, `[{"\u006fp":"add","p\u0061th":"\u002fb","value":"\u0061","extra":{}}]`},
	{`{"a":1}`, `[{"op":"\u0061dd","path":"/b\u0000\ud800","value":1}]`},
	{`{"a":1}`, `[{"op":"add","from":7,"path":"/b","value":1}]`},
	// null, in its three forms.
	{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"test","path":"/b","value":null}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b"},{"op":"test","path":"/b","value":null}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"test","path":"/b"}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"test","path":"","value":{"a":1,"b":null}}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b"},{"op":"test","path":"","value":{"a":1,"b":null}}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"copy","from":"/b","path":"/c"}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"copy","from":"/b","path":"/c"},{"op":"test","path":"/c","value":null}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"copy","from":"/b","path":"/c"},{"op":"test","path":"/c","value":{}}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"copy","from":"/b","path":"/c"},{"op":"test","path":"/c","value":[]}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"copy","from":"/b","path":"/c"},{"op":"test","path":"/c/d","value":null}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"copy","from":"/b","path":"/c"},{"op":"copy","from":"/c/d","path":"/e"}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"copy","from":"/b","path":"/c"},{"op":"remove","path":"/c/d"}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"copy","from":"/b","path":"/c"},{"op":"add","path":"/c/d","value":1}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"copy","from":"/b","path":"/c"},{"op":"copy","from":"/c","path":"/d"},{"op":"test","path":"/d","value":{}}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"add","path":"/b/c","value":1}]`},
	{`{"a":1}`, `[{"op":"add","path":"/b","value":null},{"op":"move","from":"/b","path":"/c"},{"op":"test","path":"/c","value":null}]`},
	{`{"a":null}`, `[{"op":"copy","from":"/a","path":"/b"},{"op":"test","path":"/b","value":null}]`},
	{`{"a":null}`, `[{"op":"move","from":"/a","path":"/b"}]`},
	{`{"a":null}`, `[{"op":"remove","path":"/a"},{"op":"remove","path":"/a"}]`},
	{`{"a":1}`, `[{"op":"copy","from":"/nothing","path":"/b"}]`},
	{`{"a":1}`, `[{"op":"move","from":"/nothing","path":"/b"}]`},
	{`{"a":[null]}`, `[{"op":"test","path":"/a","value":[null]}]`},
	{`{"a":[1]}`, `[{"op":"test","path":"/a","value":[null]}]`},
	{`{"a":[null,1]}`, `[{"op":"test","path":"/a/0","value":null}]`},
	{`{"a":{"b":null}}`, `[{"op":"test","path":"/a","value":{"b":null}}]`},
	{`{"a":{"b":null}}`, `[{"op":"test","path":"/a","value":{"c":null}}]`},
	{`{"a":{"b":null}}`, `[{"op":"test","path":"/a","value":{"b":1}}]`},
	{`{"a":{}}`, `[{"op":"test","path":"/a","value":{"b":null}}]`},
	// Equality.
	{`{"a":1.0}`, `[{"op":"test","path":"/a","value":1}]`},
	{`{"a":1.0}`, `[{"op":"test","path":"/a","value":1.0}]`},
	{`{"a":1e2}`, `[{"op":"test","path":"/a","value":100}]`},
	{`{"a":"\u0061"}`, `[{"op":"test","path":"/a","value":"a"}]`},
	{`{"a":"\u0061"}`, `[{"op":"test","path":"/a","value":"\u0061"}]`},
	{`{"a":"1"}`, `[{"op":"test","path":"/a","value":1}]`},
	{`{"a":true}`, `[{"op":"test","path":"/a","value":true}]`},
	{`{"a":true}`, `[{"op":"test","path":"/a","value":false}]`},
	{`{"a":{"x":[1,{"y":2}],"z":3}}`, `[{"op":"test","path":"/a","value":{ "z" : 3, "x":[ 1,{"y":2} ]}}]`},
	{`{"a":{"x":[1,{"y":2}],"z":3}}`, `[{"op":"test","path":"/a","value":{"z":3,"x":[1,{"y":4}]}}]`},
	{`{"a":{"x":1,"x":2}}`, `[{"op":"test","path":"/a","value":{"x":2}}]`},
	{`{"a":{"x":2}}`, `[{"op":"test","path":"/a","value":{"x":1,"x":2}}]`},
	{`{"a":{"\u0078":2}}`, `[{"op":"test","path":"/a","value":{"x":2}}]`},
	{`{"a":[]}`, `[{"op":"test","path":"/a","value":{}}]`},
	{`{"a":{}}`, `[{"op":"test","path":"/a","value":[]}]`},
	{`{"a":"x"}`, `[{"op":"test","path":"/a","value":{}}]`},
	{`{"a":[1,2]}`, `[{"op":"test","path":"/a","value":[2,1]}]`},
	{`{"a":[1,2]}`, `[{"op":"test","path":"","value":{"a":[1,2]}}]`},
	{`{"a":[1,2]}`, `[{"op":"test","path":"","value":null}]`},
	{`{"a":[1,2]}`, `[{"op":"test","path":""}]`},
	{`{"a":[1,2]}`, `[{"op":"add","path":"/a/0","value":0},{"op":"test","path":"/a","value":[0,1,2]}]`},
	{`{"a":{"b":1}}`, `[{"op":"remove","path":"/a/b"},{"op":"test","path":"/a","value":{}}]`},
	{`{"a":{"b":1}}`, `[{"op":"remove","path":"/a/b"},{"op":"test","path":"/a/b","value":null}]`},
	// The root.
	{`{"a":1}`, `[{"op":"replace","path":"","value":{"b":2}},{"op":"add","path":"/c","value":3}]`},
	{`{"a":1}`, `[{"op":"replace","path":"","value":[1]},{"op":"add","path":"/-","value":3}]`},
	{`{"a":1}`, `[{"op":"replace","path":"","value":null}]`},
	{`{"a":1}`, `[{"op":"replace","path":"","value":"x"}]`},
	{`{"a":1}`, `[{"op":"replace","path":""}]`},
	{`{"a":1}`, `[{"op":"remove","path":""}]`},
	{`{"a":1}`, `[{"op":"copy","from":"","path":"/b"}]`},
	{`{"a":1}`, `[{"op":"move","from":"","path":"/b"}]`},
	// Moves and copies.
	{`{"a":{"b":1}}`, `[{"op":"move","from":"/a","path":"/a"}]`},
	{`{"a":{"b":1}}`, `[{"op":"move","from":"/a","path":"/a/b"}]`},
	{`{"a":{"b":1}}`, `[{"op":"move","from":"/a/b","path":"/a"}]`},
	{`{"a":{"b":1}}`, `[{"op":"copy","from":"/a","path":"/a/b"}]`},
	{`{"a":{"b":1}}`, `[{"op":"copy","from":"/a","path":"/a/b"},{"op":"copy","from":"/a","path":"/a/c"},{"op":"remove","path":"/a/b/b"}]`},
	{`{"a":{"b":{"c":1}}}`, `[{"op":"copy","from":"/a","path":"/d"},{"op":"add","path":"/d/b/e","value":2},{"op":"add","path":"/a/b/f","value":3}]`},
	{`{"a":{"b":{"c":1}}}`, `[{"op":"add","path":"/a/b/x","value":1},{"op":"copy","from":"/a","path":"/d"},{"op":"add","path":"/d/b/e","value":2},{"op":"add","path":"/a/b/f","value":3}]`},
	{`{"a":[1,2,3,4]}`, `[{"op":"move","from":"/a/0","path":"/a/3"}]`},
	{`{"a":[1,2,3,4]}`, `[{"op":"move","from":"/a/0","path":"/a/4"}]`},
	{`{"a":[1,2,3,4]}`, `[{"op":"move","from":"/a/-1","path":"/a/-1"}]`},
	{`{"a":[1,2,3,4]}`, `[{"op":"move","from":"/a/3","path":"/a/-"}]`},
	{`{"a":[1,2,3,4]}`, `[{"op":"move","from":"/a/-","path":"/a/0"}]`},
	{`{"a":[1,2,3,4]}`, `[{"op":"copy","from":"/a/1","path":"/a/1"}]`},
	{`{"a":[1,2,3,4]}`, `[{"op":"copy","from":"/a","path":"/a/-"}]`},
	{`{"a":[1,2,3,4]}`, `[{"op":"copy","from":"/a/4","path":"/b"}]`},
	{`{"a":[1],"b":[2]}`, `[{"op":"move","from":"/a/0","path":"/b/0"},{"op":"move","from":"/b/1","path":"/a/0"}]`},
	// Sequences.
	{`{"a":[]}`, `[{"op":"add","path":"/a/0","value":1},{"op":"add","path":"/a/0","value":2},{"op":"add","path":"/a/-1","value":3},{"op":"add","path":"/a/-4","value":4},{"op":"remove","path":"/a/1"}]`},
	{`{"a":{}}`, `[{"op":"add","path":"/a/x","value":1},{"op":"remove","path":"/a/x"},{"op":"add","path":"/a/x","value":{"y":2}},{"op":"add","path":"/a/x/z","value":3}]`},
	{`{"a":1,"a":2}`, `[{"op":"remove","path":"/a"}]`},
	{`{"a":1,"a":2}`, `[{"op":"remove","path":"/a"},{"op":"remove","path":"/a"}]`},
	{`{"a":1,"\u0061":2}`, `[{"op":"replace","path":"/a","value":3}]`},
	{`{"b":{"a":1,"a":2},"a":{"b":1}}`, `[{"op":"add","path":"/b/c","value":1},{"op":"remove","path":"/b/a"}]`},
	{`{"a":"b"}`, `[{"op":"add","path":"/a/b","value":1}]`},
	{`{"a":"b"}`, `[{"op":"test","path":"/a/b","value":null}]`},
	{`{"a":"[b"}`, `[{"op":"test","path":"/a/0","value":null}]`},
	{`{"a":5}`, `[{"op":"replace","path":"/a/0","value":1}]`},
	{`{"a":[{"b":[{"c":1}]}]}`, `[{"op":"add","path":"/a/0/b/0/d","value":{"e":[]}},{"op":"add","path":"/a/-1/b/-1/d/e/-","value":2},{"op":"remove","path":"/a/0/b/0/c"}]`},
	{` { "a" : [ 1 , 2 ] , "b" : { } } `, `[ { "op" : "add" , "path" : "/a/1" , "value" : [ 3 , 4 ] } , { "op" : "add", "path" : "/b/x y", "value" : " " } ]`},
	{`{"a<b":"<&>"}`, `[{"op":"test","path":"/a<b","value":"<&>"},{"op":"copy","from":"/a<b","path":"/c>d"}]`},
}

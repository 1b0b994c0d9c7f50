package main

// versions is what hooks are asked about that name one version of a resource, and what they are not.
func versions() []namedCall {
	var all []namedCall
	// Two hooks, one for each version: whichever a request comes in, one of them wants it in the other.
	for _, version := range []string{"v1", "v2"} {
		autoscalers := "/apis/autoscaling/" + version + "/namespaces/e2e/horizontalpodautoscalers"
		one := "another version: autoscaler " + version
		wanted := func() object { return autoscaler(version, "wanted").label("ask", "scaling") }
		unwanted := "unwanted-" + version
		all = append(all,
			namedCall{one + " allowed", create(autoscalers+dryRun, wanted())},
			namedCall{one + " denied by the hook for v1", create(autoscalers+dryRun, wanted().script("scaling-one", deny))},
			namedCall{one + " denied by the hook for v2", create(autoscalers+dryRun, wanted().script("scaling-two", deny))},
			namedCall{"autoscaler " + version + " made that nobody wants", create(autoscalers, autoscaler(version, unwanted))},
			namedCall{one + " changed", merge(autoscalers+"/"+unwanted+dryRun, `{"metadata": {"labels": {"ask": "scaling"}}}`)},
		)
	}
	// Hooks for v1 only.
	for _, version := range []string{"v1", "v2"} {
		how := map[string]string{"v1": "its own version", "v2": "another version"}[version]
		gadgets := "/apis/e2e.gatepost.dev/" + version + "/namespaces/e2e/gadgets"
		wanted := func(hook string) object {
			gadget := newObject("e2e.gatepost.dev/"+version, "Gadget", "wanted")
			return gadget.with("spec", map[string]any{"size": 1}).label("ask", hook)
		}
		all = append(all,
			namedCall{how + ": gadget allowed", create(gadgets+dryRun, wanted("gadgets"))},
			namedCall{how + ": gadget denied", create(gadgets+dryRun, wanted("gadgets").script("gadgets", deny))},
			namedCall{how + ", lenient: gadget allowed", create(gadgets+dryRun, wanted("gadgets-lenient"))},
			namedCall{how + ", lenient: gadget denied", create(gadgets+dryRun, wanted("gadgets-lenient").script("gadgets-lenient", deny))},
			namedCall{how + ", exact: gadget denied", create(gadgets+dryRun, wanted("gadgets-exact").script("gadgets-exact", deny))},
		)
	}
	return all
}

// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"maps"
	"slices"

	"navix.sh/atoll/api/v1alpha1"
)

// Part returns the part of an Env that a cluster gets, or false if it gets nothing. Every cluster gets a template as a whole.
func (o Object) Part(cluster string) (Object, bool) {
	if o.Kind() != EnvKind {
		return o, true
	}
	own := -1
	segments := o.segments()
	for i, s := range segments {
		if s.text("clusterID") == cluster {
			own = i
		}
	}
	if own < 0 {
		return nil, false
	}
	// Do not copy the other segments, of which there may be a hundred.
	out, spec := maps.Clone(o), maps.Clone(o.object("spec"))
	spec["clusters"] = []any{map[string]any(segments[own])}
	out["spec"] = map[string]any(spec)
	out = out.Copy()
	spec = out.object("spec")
	segment := out.segments()[0]
	drop(out.object("metadata"), "annotations", v1alpha1.CatalogRolloutAnnotationKey)
	scaling, ok := toObject(spec["autoscaling"])
	if !ok {
		return out, true
	}
	groups, ok := scaling["groups"].([]any)
	if !ok {
		return out, true
	}
	groups = slices.DeleteFunc(groups, func(v any) bool {
		g, _ := toObject(v)
		return !slices.ContainsFunc(segment.list("members"), func(m Object) bool { return group(m) == g.text("name") })
	})
	if scaling["groups"] = groups; len(groups) == 0 {
		delete(spec, "autoscaling")
	}
	return out, true
}

// Join returns an Env with the segments of several parts of it. Everything except segments and groups is taken from the first part.
func Join(parts []Object) Object {
	out := parts[0].Copy()
	var segments, groups []any
	seen := map[string]bool{}
	var scaling Object
	for _, p := range parts {
		for _, s := range p.segments() {
			if id := s.text("clusterID"); !seen["cluster "+id] {
				seen["cluster "+id] = true
				segments = append(segments, map[string]any(s.Copy()))
			}
		}
		its, ok := toObject(p.object("spec")["autoscaling"])
		if !ok {
			continue
		}
		if scaling == nil {
			scaling = its.Copy()
		}
		for _, g := range its.list("groups") {
			if name := g.text("name"); !seen["group "+name] {
				seen["group "+name] = true
				groups = append(groups, map[string]any(g.Copy()))
			}
		}
	}
	spec := out.object("spec")
	if len(segments) > 0 {
		spec["clusters"] = segments
	}
	if scaling != nil {
		if len(groups) > 0 {
			scaling["groups"] = groups
		}
		spec["autoscaling"] = map[string]any(scaling)
	}
	return out
}

// WithoutScaled returns an Env without the replicas of members in autoscaled groups, which the autoscaler sets.
func (o Object) WithoutScaled() Object {
	out := o.Copy()
	enabled := map[string]bool{}
	for _, g := range out.object("spec", "autoscaling").list("groups") {
		on, stated := g["enabled"].(bool)
		enabled[g.text("name")] = on || !stated
	}
	for _, s := range out.segments() {
		for _, m := range s.list("members") {
			if enabled[group(m)] {
				drop(m, "spec", "replicas")
			}
		}
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"navix.sh/atoll/pkg/clip"
)

const (
	maxChanges = 200
	maxValue   = 160
)

// Diff describes the differences between two values, field by field: path: old -> new. It lists at most 200 fields.
func Diff(before, after any) []string {
	var d diff
	d.compare("", plain(before), plain(after))
	if more := len(d.out) - maxChanges; more > 0 {
		d.out = append(d.out[:maxChanges], fmt.Sprintf("and %d more", more))
	}
	return d.out
}

type diff struct{ out []string }

func plain(v any) any {
	if o, ok := v.(Object); ok {
		return map[string]any(o)
	}
	return v
}

func (d *diff) compare(path string, a, b any) {
	if reflect.DeepEqual(a, b) {
		return
	}
	was, wasMap := a.(map[string]any)
	is, isMap := b.(map[string]any)
	if wasMap && isMap {
		all := map[string]any{}
		maps.Copy(all, was)
		maps.Copy(all, is)
		for _, k := range slices.Sorted(maps.Keys(all)) {
			d.compareEntry(join(path, k), was, is, k)
		}
		return
	}
	before, wasList := a.([]any)
	after, isList := b.([]any)
	if wasList && isList {
		d.lists(path, before, after)
		return
	}
	d.add(path, show(a), show(b))
}

func (d *diff) compareEntry(path string, was, is map[string]any, key string) {
	before, had := was[key]
	after, has := is[key]
	switch {
	case !had:
		d.add(path, "(none)", show(after))
	case !has:
		d.add(path, show(before), "(none)")
	default:
		d.compare(path, before, after)
	}
}

// lists compares lists by the names of their elements if they have names, so that an inserted element is one change.
func (d *diff) lists(path string, before, after []any) {
	was, order := named(before)
	is, later := named(after)
	if was == nil || is == nil {
		for i := range max(len(before), len(after)) {
			at := fmt.Sprintf("%s[%d]", path, i)
			switch {
			case i >= len(before):
				d.add(at, "(none)", show(after[i]))
			case i >= len(after):
				d.add(at, show(before[i]), "(none)")
			default:
				d.compare(at, before[i], after[i])
			}
		}
		return
	}
	for _, name := range later {
		if _, had := was[name]; !had {
			order = append(order, name)
		}
	}
	for _, name := range order {
		d.compareEntry(fmt.Sprintf("%s[%s]", path, name), was, is, name)
	}
}

// named returns the elements of a list by name, or nil if an element has no name or two share one.
func named(list []any) (map[string]any, []string) {
	out := map[string]any{}
	var order []string
	for _, v := range list {
		m, _ := v.(map[string]any)
		name := ""
		for _, key := range []string{"clusterID", "name"} {
			if s, ok := m[key].(string); ok && name == "" {
				name = s
			}
		}
		if metadata, ok := m["metadata"].(map[string]any); ok && name == "" {
			name, _ = metadata["name"].(string)
		}
		if _, twice := out[name]; name == "" || twice {
			return nil, nil
		}
		out[name] = v
		order = append(order, name)
	}
	return out, order
}

func (d *diff) add(path, was, is string) { d.out = append(d.out, path+": "+was+" -> "+is) }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func show(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return clip.Text(string(data), maxValue)
}

// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"navix.sh/atoll/pkg/clip"
)

const (
	// mostDifferences and longestValue bound the report about a refreshed member.
	mostDifferences = 50
	longestValue    = 120
)

// Differences returns the fields in which two documents of a member differ.
func Differences(before, after map[string]any) []string {
	var out []string
	collect("", before, after, &out)
	if len(out) > mostDifferences {
		out = append(out[:mostDifferences], fmt.Sprintf("and %d more", len(out)-mostDifferences))
	}
	return out
}

func collect(path string, before, after any, out *[]string) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch was := before.(type) {
	case map[string]any:
		if is, ok := after.(map[string]any); ok {
			keys := maps.Clone(was)
			maps.Copy(keys, is)
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				collect(join(path, key), was[key], is[key], out)
			}
			return
		}
	case []any:
		if is, ok := after.([]any); ok {
			for i := range max(len(was), len(is)) {
				collect(path+"["+strconv.Itoa(i)+"]", at(was, i), at(is, i), out)
			}
			return
		}
	}
	*out = append(*out, fmt.Sprintf("%s: %s -> %s", path, show(before), show(after)))
}

// join appends a key to a path. It writes a key that is not a plain word, such as a label's, in brackets.
func join(path, key string) string {
	for _, r := range key {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return path + "[" + key + "]"
		}
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

func show(value any) string {
	if value == nil {
		return "none"
	}
	content, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return clip.Text(string(content), longestValue)
}

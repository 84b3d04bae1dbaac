// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/validate"
)

// Bounds of selectors and masks.
const (
	maxSelector     = 4096 // bytes
	maxRequirements = 64
	maxPaths        = 100
)

const (
	validSelector = `requirements such as "app=web,tier in (a,b),!old", at most 64 in 4096 bytes`
	validMetadata = "KEY=VALUE, KEY!=VALUE, KEY or !KEY, at most 64 in 4096 bytes together"
)

// Selects reports whether a sandbox meets the selectors.
func (q *Query) Selects(s *sandboxv1.Sandbox) bool {
	if q.labels != nil && !q.labels.Matches(labels.Set(s.GetLabels())) {
		return false
	}
	for _, r := range q.metadata {
		if !r.holds(s.GetMetadata()) {
			return false
		}
	}
	return true
}

func parseLabels(f *validate.Faults, text string) labels.Selector {
	if text == "" {
		return nil
	}
	if len(text) > maxSelector {
		f.Add("labelSelector", fmt.Sprintf("%d bytes", len(text)), validSelector)
		return nil
	}
	selector, err := labels.Parse(text)
	if err != nil {
		f.Add("labelSelector", validate.Clip(text), validSelector+": "+validate.Clip(err.Error()))
		return nil
	}
	if all, _ := selector.Requirements(); len(all) > maxRequirements {
		f.Add("labelSelector", fmt.Sprintf("%d requirements", len(all)), validSelector)
	}
	return selector
}

// requirement is a requirement on metadata, whose keys and values may be any text.
type requirement struct {
	key, value string
	valued     bool // whether it has a value, with =; else only the key must exist
	negated    bool
}

func (r requirement) holds(metadata map[string]string) bool {
	value, ok := metadata[r.key]
	if r.valued {
		ok = ok && value == r.value
	}
	return ok != r.negated
}

func parseMetadata(f *validate.Faults, texts []string) (all []requirement) {
	size := 0
	for _, text := range texts {
		size += len(text)
	}
	if len(texts) > maxRequirements || size > maxSelector {
		f.Add("metadataSelector", fmt.Sprintf("%d requirements, %d bytes", len(texts), size), validMetadata)
		return nil
	}
	for i, text := range texts {
		var r requirement
		r.key, r.value, r.valued = strings.Cut(text, "=")
		if key, ok := strings.CutSuffix(r.key, "!"); ok && r.valued {
			r.key, r.negated = key, true
		} else if key, ok := strings.CutPrefix(r.key, "!"); ok && !r.valued {
			r.key, r.negated = key, true
		}
		f.Check(r.key != "", fmt.Sprintf("metadataSelector[%d]", i), validate.Clip(text), validMetadata)
		all = append(all, r)
	}
	return all
}

// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// bounds is how many values each label may have. Those above 100 are names of objects, of which only the first have series; all
// others are constants of the source.
var bounds = map[string]int{
	"namespace": 1000, "env": 1000, "pool": 1000, // of Envs and pools, which their clusters bound
	"cluster": 100, // that a certificate was issued for
	"action":  16, "call": 32, "cause": 32, "code": 17, "direction": 4, "file": 4, "health": 8, "keyed": 2, "kind": 24, "method": 64,
	"outcome": 32, "phase": 8, "plugin": 8, "question": 4, "reason": 64, "result": 32, "stage": 24, "state": 16, "target": 4, "verb": 16,
	"who": 2, "sink": 4,
}

// CheckLabels returns an error for each label without a bound, with more values than its bound, or with a value that has a hostile
// text. It looks at what the recorded metrics of Atoll have gathered.
func (r *Recorder) CheckLabels(hostile string) error {
	var errs []error
	for _, m := range r.Metrics(prefix) {
		for _, label := range m.Labels {
			if bounds[label] == 0 {
				errs = append(errs, fmt.Errorf("%s: label %s has no bound; bound its values in the source, then name the bound here", m.Name, label))
			}
		}
	}
	families, err := r.Gather()
	if err != nil {
		return err
	}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), prefix) {
			continue
		}
		values := map[string][]string{}
		for _, series := range family.GetMetric() {
			for _, l := range series.GetLabel() {
				values[l.GetName()] = append(values[l.GetName()], l.GetValue())
			}
		}
		for label, all := range values {
			slices.Sort(all)
			all = slices.Compact(all)
			if len(all) > bounds[label] {
				errs = append(errs, fmt.Errorf("%s: label %s has %d values, want at most %d: %q …", family.GetName(), label, len(all), bounds[label],
					all[:min(len(all), 5)]))
			}
			for _, value := range all {
				if strings.Contains(strings.ToLower(value), hostile) {
					errs = append(errs, fmt.Errorf("%s: label %s has the hostile value %q", family.GetName(), label, value))
				}
			}
		}
	}
	return errors.Join(errs...)
}

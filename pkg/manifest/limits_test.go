// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"
	"testing"
	"time"
)

func TestPlanLimits(t *testing.T) {
	p, err := parsePlan("{stages: [[a, b, c, d]], pause: 10s, maxUnavailable: 25%, abortOn: {claimFailureRate: 2.5%}}",
		[]string{"a", "b", "c", "d"})
	if err != nil || p.ClaimFailures != 0.025 || p.Pause != time.Minute || p.AtOnce(4) != 1 || p.AtOnce(8) != 2 || p.AtOnce(1) != 1 {
		t.Errorf("got %+v, %v", p, err)
	}
	if p, err = parsePlan("{stages: [[a]], maxUnavailable: 3}", []string{"a"}); err != nil || p.AtOnce(8) != 3 || p.AtOnce(2) != 2 {
		t.Errorf("got %+v, %v", p, err)
	}
	if p, err = parsePlan("{stages: [[a]]}", []string{"a"}); err != nil || p.AtOnce(8) != 8 || p.ClaimFailures != 0 || p.Pause != 0 {
		t.Errorf("without limits: %+v, %v", p, err)
	}
	for text, want := range map[string]string{
		"abortOn: {claimFailureRate: '5'}":  `abortOn.claimFailureRate: "5" is not valid, want a percentage`,
		"abortOn: {claimFailureRate: 0%}":   `"0%" is not valid`,
		"abortOn: {claimFailureRate: 101%}": `"101%" is not valid`,
		"abortOn: {claimFailureRate: NaN%}": `"NaN%" is not valid`,
		"maxUnavailable: 0":                 `maxUnavailable: "0" is not valid, want a number of clusters`,
		"maxUnavailable: -1":                `maxUnavailable: "-1" is not valid`,
		"maxUnavailable: 0%":                `maxUnavailable: "0%" is not valid`,
		"maxUnavailable: some":              `maxUnavailable: "some" is not valid`,
		"maxUnavailable: ''":                `maxUnavailable: "" is not valid`,
	} {
		if _, err := parsePlan("{stages: [[a]], "+text+"}", []string{"a"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/rollout"
)

// Bounds and defaults of a Plan.
const (
	maxStages = 32
	maxPause  = 30 * 24 * time.Hour
	// DefaultPatience is how long a stage may take to become ready before it fails.
	DefaultPatience = 10 * time.Minute
	// leastWatch is the minimum time that the claims of a stage are watched after it is ready.
	leastWatch = time.Minute

	manual   = "manual"
	rollback = "rollback"
)

// Plan describes how a change of an Env is rolled out from cluster to cluster.
type Plan struct {
	Stages   [][]string
	Pause    time.Duration // between stages
	Manual   bool          // a person resumes after each stage
	Rollback bool          // a failed stage reverts all stages; else the rollout pauses
	// NotReadyFor is how long a stage may take to become ready before it fails.
	NotReadyFor time.Duration
	// ClaimFailures is the fraction of a stage's claims that may fail before the stage fails; 0: claims are not checked.
	ClaimFailures float64 `json:",omitempty"`
	// MaxUnavailable is the number or percentage of a stage's clusters that may be unready at the same time; empty: all.
	MaxUnavailable string `json:",omitempty"`
}

// AtOnce returns how many of the given number of clusters may be unready at the same time, at least one.
func (p *Plan) AtOnce(clusters int) int {
	limit, err := rollout.Parse(p.MaxUnavailable)
	if p.MaxUnavailable == "" || err != nil {
		return clusters
	}
	return min(max(limit.Of(int32(clusters)), 1), clusters)
}

// planText is the format of a Plan in its annotation.
type planText struct {
	Stages    [][]string `json:"stages"`
	Pause     string     `json:"pause"`
	OnFailure string     `json:"onFailure"`
	AbortOn   struct {
		NotReadyFor      string `json:"notReadyFor"`
		ClaimFailureRate string `json:"claimFailureRate"`
	} `json:"abortOn"`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable"`
}

// PlanOf parses the rollout plan of an Env. It returns nil if there is none.
func PlanOf(o Object) (*Plan, error) {
	text := o.Annotation(v1alpha1.CatalogRolloutAnnotationKey)
	if text == "" {
		return nil, nil //nolint:nilnil // nil is no plan
	}
	p, err := parsePlan(text, o.Clusters())
	if err != nil {
		return nil, fmt.Errorf("metadata.annotations[%s]: %w", v1alpha1.CatalogRolloutAnnotationKey, err)
	}
	return p, nil
}

func parsePlan(text string, clusters []string) (*Plan, error) {
	in := planText{}
	if err := yaml.UnmarshalStrict([]byte(text), &in); err != nil {
		return nil, fmt.Errorf("it is not a plan: %w", err)
	}
	p := &Plan{Stages: in.Stages, Rollback: in.OnFailure == rollback}
	if in.OnFailure != "" && in.OnFailure != "pause" && in.OnFailure != rollback {
		return nil, fmt.Errorf("onFailure: %q is not valid, want pause or rollback", in.OnFailure)
	}
	var err error
	if in.Pause == manual {
		p.Manual, in.Pause = true, ""
	}
	for _, d := range []struct {
		field, text string
		fallback    time.Duration
		into        *time.Duration
	}{
		{"pause", in.Pause, 0, &p.Pause},
		{"abortOn.notReadyFor", in.AbortOn.NotReadyFor, DefaultPatience, &p.NotReadyFor},
	} {
		if *d.into = d.fallback; d.text == "" {
			continue
		}
		if *d.into, err = time.ParseDuration(d.text); err != nil || *d.into < 0 || *d.into > maxPause {
			return nil, fmt.Errorf("%s: %q is not valid, want a duration such as 10m, at most 720h%s", d.field, d.text,
				map[bool]string{true: ", or manual"}[d.field == "pause"])
		}
	}
	if err := p.readLimits(in); err != nil {
		return nil, err
	}
	return p, p.complete(clusters)
}

// readLimits parses the limits: when a stage has failed, and how many clusters may be unready.
func (p *Plan) readLimits(in planText) error {
	if text := in.AbortOn.ClaimFailureRate; text != "" {
		number, isPercent := strings.CutSuffix(text, "%")
		percent, err := strconv.ParseFloat(number, 64)
		if err != nil || !isPercent || !(percent > 0 && percent <= 100) {
			return fmt.Errorf("abortOn.claimFailureRate: %q is not valid, want a percentage such as 5%%, above 0%% to 100%%", text)
		}
		p.ClaimFailures = percent / 100
		p.Pause = max(p.Pause, leastWatch)
	}
	if in.MaxUnavailable != nil {
		p.MaxUnavailable = in.MaxUnavailable.String()
		limit, err := rollout.Parse(p.MaxUnavailable)
		if err != nil || p.MaxUnavailable == "" || limit.Of(100) < 1 {
			return fmt.Errorf("maxUnavailable: %q is not valid, want a number of clusters from 1, or 1%% to 100%% of a stage", p.MaxUnavailable)
		}
	}
	return nil
}

// complete checks the stages, and adds a last stage with the clusters that are in none.
func (p *Plan) complete(clusters []string) error {
	if len(p.Stages) == 0 || len(p.Stages) > maxStages {
		return fmt.Errorf("stages: %d are not valid, want 1 to %d lists of clusters", len(p.Stages), maxStages)
	}
	seen := map[string]bool{}
	for i, stage := range p.Stages {
		if len(stage) == 0 {
			return fmt.Errorf("stages[%d]: [] is not valid, want clusters of the Env: %s", i, strings.Join(clusters, ", "))
		}
		for _, id := range stage {
			if !slices.Contains(clusters, id) || seen[id] {
				return fmt.Errorf("stages[%d]: %q is not valid, want clusters of the Env, each in one stage: %s", i, id, strings.Join(clusters, ", "))
			}
			seen[id] = true
		}
	}
	rest := slices.DeleteFunc(slices.Clone(clusters), func(id string) bool { return seen[id] })
	if len(rest) > 0 {
		p.Stages = append(p.Stages, rest)
	}
	return nil
}

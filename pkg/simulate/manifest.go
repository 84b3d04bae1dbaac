// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
)

// maxManifest is more than an API server accepts.
const maxManifest = 4 << 20

// maxReplicas bounds the Pods that a run starts with.
const maxReplicas = 100_000

// DefaultGroup returns a group with the API server's defaults, for a manifest that contains only its name.
func DefaultGroup(name string) v1alpha1.EnvAutoscalingGroup {
	return v1alpha1.EnvAutoscalingGroup{
		Name:        name,
		MinReplicas: new(int32),
		ScaleUpPolicy: v1alpha1.PoolScaleUpPolicy{
			Mode: v1alpha1.PoolScaleUpModeDefault, CooldownSeconds: 30, IdleThresholdSeconds: 30,
			IdleZeroQuietWindowSeconds: 300, SaturationCooldownSeconds: 60,
		},
		ScaleDownPolicy: v1alpha1.PoolScaleDownPolicy{IdleTimeoutSeconds: 300, StabilizationSeconds: 60, ProtectionWindowSeconds: 10},
	}
}

// ReadEnv reads the Env from a manifest, which may hold other objects as well, and fills in the API server's defaults. name
// selects one of several Envs, cluster the segment of one cluster; both may be empty.
func ReadEnv(r io.Reader, name, cluster string) (Env, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(io.LimitReader(r, maxManifest)))
	var found []Env
	var names []string
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Env{}, fmt.Errorf("reading the manifest: %w", err)
		}
		env, is, err := parseEnv(document)
		if err != nil {
			return Env{}, err
		}
		if is {
			names = append(names, env.Name)
			if name == "" || name == env.Name {
				found = append(found, env)
			}
		}
	}
	switch {
	case len(names) == 0:
		return Env{}, errors.New("the manifest holds no SandboxEnv of agents.navix.sh/v1alpha1")
	case len(found) != 1:
		return Env{}, problem.InvalidField("env", name, "one of "+strings.Join(names, ", "))
	}
	return found[0].check(cluster)
}

func parseEnv(document []byte) (env Env, is bool, err error) {
	var kind struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return Env{}, false, fmt.Errorf("reading the manifest: %w", err)
	}
	if kind.Kind != "SandboxEnv" || kind.APIVersion != v1alpha1.GroupVersion.String() {
		return Env{}, false, nil
	}
	object := &v1alpha1.SandboxEnv{}
	plain, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return Env{}, false, fmt.Errorf("reading the SandboxEnv: %w", err)
	}
	unknown, err := kjson.UnmarshalStrict(plain, object)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return Env{}, false, fmt.Errorf("reading the SandboxEnv: %w", err)
	}
	env = Env{Name: object.Name}
	// Decode again over the defaults: a typed object does not distinguish a field that is 0 from a missing field.
	var raw struct {
		Spec struct {
			Autoscaling struct {
				Groups []json.RawMessage `json:"groups"`
			} `json:"autoscaling"`
			Clusters []struct {
				Members []struct {
					Config json.RawMessage `json:"config"`
				} `json:"members"`
			} `json:"clusters"`
		} `json:"spec"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(plain, &raw); err != nil {
		return Env{}, false, fmt.Errorf("reading the SandboxEnv: %w", err)
	}
	for _, message := range raw.Spec.Autoscaling.Groups {
		group := DefaultGroup("")
		if err := overlay(message, &group); err != nil {
			return Env{}, false, err
		}
		env.Groups = append(env.Groups, group)
	}
	for i, c := range object.Spec.Clusters {
		for j, member := range c.Members {
			config := v1alpha1.EnvClusterMemberConfig{ScalingGroup: "default"}
			if err := overlay(raw.Spec.Clusters[i].Members[j].Config, &config); err != nil {
				return Env{}, false, err
			}
			env.Pools = append(env.Pools, Pool{Cluster: c.ClusterID, Name: member.Name, Replicas: member.Spec.Replicas, Config: config})
		}
	}
	return env, true, nil
}

// overlay sets the fields that a manifest names, and keeps the others.
func overlay(message json.RawMessage, into any) error {
	message = bytes.TrimSpace(message)
	if len(message) == 0 || string(message) == "null" {
		return nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(message, into); err != nil {
		return fmt.Errorf("reading the SandboxEnv: %w", err)
	}
	return nil
}

// check rejects what the API server would reject, and an Env with nothing to simulate.
func (e Env) check(cluster string) (Env, error) {
	clusters := e.clusters()
	if cluster != "" {
		e.Pools = slices.DeleteFunc(e.Pools, func(p Pool) bool { return p.Cluster != cluster })
		if len(e.Pools) == 0 {
			return Env{}, problem.InvalidField("cluster", cluster, "a cluster with members, of "+strings.Join(clusters, ", "))
		}
	}
	if len(e.Pools) == 0 {
		return Env{}, problem.InvalidField("spec.clusters", "", "at least one cluster with a member")
	}
	if faults := e.faults(); len(faults) > 0 {
		return Env{}, problem.InvalidFields(faults...)
	}
	return e, nil
}

// faults checks only the fields that a simulation uses. The API server checks the rest of the manifest.
func (e Env) faults() []problem.Field {
	var all []problem.Field
	fault := func(field string, value any, valid string) {
		all = append(all, problem.Field{Field: field, Value: fmt.Sprint(value), Valid: valid})
	}
	atLeast0 := func(field string, value int32) {
		if value < 0 {
			fault(field, value, "0 or more")
		}
	}
	bound := func(path string, least, most *int32) {
		atLeast0(path+".minReplicas", ptr.Deref(least, 0))
		atLeast0(path+".maxReplicas", ptr.Deref(most, 0))
		if least != nil && most != nil && *least > *most {
			fault(path+".minReplicas", *least, fmt.Sprintf("no more than maxReplicas, %d", *most))
		}
	}
	seen := map[string]bool{}
	for i := range e.Groups {
		g, path := &e.Groups[i], fmt.Sprintf("spec.autoscaling.groups[%d]", i)
		if g.Name == "" || seen[g.Name] {
			fault(path+".name", g.Name, "a name that no other group has")
		}
		seen[g.Name] = true
		bound(path, g.MinReplicas, g.MaxReplicas)
		up, down := g.ScaleUpPolicy, g.ScaleDownPolicy
		switch up.Mode {
		case v1alpha1.PoolScaleUpModeConservative, v1alpha1.PoolScaleUpModeDefault:
		case v1alpha1.PoolScaleUpModeAggressive:
			if g.MaxReplicas == nil {
				fault(path+".maxReplicas", "", "a ceiling, which scaleUpPolicy.mode Aggressive requires")
			}
		default:
			fault(path+".scaleUpPolicy.mode", up.Mode, "Conservative, Default or Aggressive")
		}
		atLeast0(path+".scaleUpPolicy.cooldownSeconds", up.CooldownSeconds)
		atLeast0(path+".scaleUpPolicy.idleThresholdSeconds", up.IdleThresholdSeconds)
		atLeast0(path+".scaleUpPolicy.idleZeroQuietWindowSeconds", up.IdleZeroQuietWindowSeconds)
		atLeast0(path+".scaleUpPolicy.saturationCooldownSeconds", up.SaturationCooldownSeconds)
		atLeast0(path+".scaleDownPolicy.idleTimeoutSeconds", down.IdleTimeoutSeconds)
		atLeast0(path+".scaleDownPolicy.stabilizationSeconds", down.StabilizationSeconds)
		atLeast0(path+".scaleDownPolicy.protectionWindowSeconds", down.ProtectionWindowSeconds)
	}
	members := map[string]bool{}
	for i := range e.Pools {
		p := &e.Pools[i]
		path := fmt.Sprintf("spec.clusters[%s].members[%s]", p.Cluster, p.Name)
		if p.Cluster == "" || p.Name == "" || members[path] {
			fault(path+".name", p.Name, "a cluster and a name, that no other member has")
		}
		members[path] = true
		if p.Replicas < 0 || p.Replicas > maxReplicas {
			fault(path+".spec.replicas", p.Replicas, fmt.Sprintf("0 to %d", maxReplicas))
		}
		bound(path+".config", p.Config.MinReplicas, p.Config.MaxReplicas)
	}
	return all
}

// Autoscaled reports whether the Env has an autoscaled pool.
func (e Env) Autoscaled() bool {
	return slices.ContainsFunc(e.Pools, func(p Pool) bool {
		return slices.ContainsFunc(e.Groups, func(g v1alpha1.EnvAutoscalingGroup) bool { return g.Enabled && g.Name == p.Config.ScalingGroup })
	})
}

func (e Env) clusters() []string {
	var ids []string
	for i := range e.Pools {
		ids = append(ids, e.Pools[i].Cluster)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

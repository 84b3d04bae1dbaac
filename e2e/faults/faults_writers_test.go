// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/stack"
)

// writerEnvs are Envs whose scale their users change continuously. Foreign segments have a rate limit for each Env.
const writerEnvs = 6

// twoWriters lets users apply several Envs, with changing scales, until the worker and its sync path have each written that often.
// After each write every segment exists, and only its writer owns it (I3).
func twoWriters(ctx context.Context, s *scenario) (err error) {
	seen := &segments{local: s.victim, foreign: s.other, last: map[string]map[string]string{}, writes: map[string]int{}}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	events, err := s.kube[s.victim].Watch(watching, &v1alpha1.SandboxEnvList{}, client.InNamespace(namespace))
	if err != nil {
		return fmt.Errorf("watching Envs: %w", err)
	}
	var looking sync.WaitGroup
	looking.Go(func() { seen.follow(events) })
	applied := 0
	for begin := time.Now(); !seen.enough(*writesFlag) && ctx.Err() == nil; applied++ {
		if time.Since(begin) > 10*patience {
			err = fmt.Errorf("after %s and %d applied manifests %s", time.Since(begin).Round(time.Second), applied, seen)
			break
		}
		if err = s.applyAll(ctx, 1+applied%3, applying[applied%len(applying)]...); err != nil {
			break
		}
	}
	events.Stop()
	looking.Wait()
	s.details = fmt.Sprintf(" %s, %d applied", seen, applied)
	errs := []error{err, seen.err(), s.heal()}
	for i := range writerEnvs {
		for _, cluster := range clusters {
			errs = append(errs, s.deleteEnv(ctx, cluster, writerEnv(i)))
		}
	}
	return errors.Join(errs...)
}

func writerEnv(i int) string { return fmt.Sprintf("writers-%d", i) }

// applyAll applies the writers' Envs in all clusters, with one call in each.
func (s *scenario) applyAll(ctx context.Context, replicas int, how ...string) error {
	var all []string
	for i := range writerEnvs {
		text, err := envOf(writerEnv(i), replicas).Manifest()
		if err != nil {
			return err
		}
		all = append(all, text)
	}
	for _, cluster := range clusters {
		if err := stack.Apply(ctx, s.Cluster(cluster), strings.Join(all, "---\n"), how...); err != nil {
			return fmt.Errorf("applying the writers' Envs in %s: %w", cluster, err)
		}
	}
	return nil
}

// segments are the Envs' status after each write.
type segments struct {
	local, foreign string

	mu     sync.Mutex
	last   map[string]map[string]string // by Env and cluster
	writes map[string]int               // by cluster
	wrong  []error
}

func (g *segments) follow(events watch.Interface) {
	for event := range events.ResultChan() {
		if env, ok := event.Object.(*v1alpha1.SandboxEnv); ok && event.Type != watch.Deleted && env.DeletionTimestamp == nil {
			g.saw(env)
		}
	}
}

// saw compares an Env with its previous state.
func (g *segments) saw(env *v1alpha1.SandboxEnv) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := map[string]string{}
	for i := range env.Status.Clusters {
		text, err := json.Marshal(&env.Status.Clusters[i])
		if err != nil {
			g.wrong = append(g.wrong, err)
		}
		now[env.Status.Clusters[i].ClusterID] = string(text)
	}
	for cluster, was := range g.last[env.Name] {
		if now[cluster] == "" {
			g.wrong = append(g.wrong, fmt.Errorf("I3: version %s of Env %s lost the segment of %s, which was %s", env.ResourceVersion, env.Name,
				cluster, was))
		}
	}
	for cluster, text := range now {
		if g.last[env.Name][cluster] != text {
			g.writes[cluster]++
		}
	}
	g.last[env.Name] = now
	if err := g.owned(env); err != nil {
		g.wrong = append(g.wrong, err)
	}
}

// owned returns an error if a writer owns another's segment.
func (g *segments) owned(env *v1alpha1.SandboxEnv) error {
	writers := map[string]string{"atoll-worker": g.local, "atoll-sync": g.foreign}
	for _, entry := range env.ManagedFields {
		if entry.Subresource != "status" {
			continue
		}
		own, known := writers[entry.Manager]
		if !known {
			return fmt.Errorf("I3: %s has written to the status of Env %s", entry.Manager, env.Name)
		}
		var fields struct {
			Status struct {
				Clusters map[string]any `json:"f:clusters"`
			} `json:"f:status"`
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			return fmt.Errorf("reading who owns what of Env %s: %w", env.Name, err)
		}
		for key := range fields.Status.Clusters {
			if key != fmt.Sprintf(`k:{"clusterID":%q}`, own) && key != "." {
				return fmt.Errorf("I3: %s owns segment %s of Env %s in %s", entry.Manager, key, env.Name, g.local)
			}
		}
	}
	return nil
}

// enough reports whether both writers have written that often, or something is wrong.
func (g *segments) enough(writes int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.wrong) > 0 || g.writes[g.local] >= writes && g.writes[g.foreign] >= writes
}

func (g *segments) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.wrong...)
}

func (g *segments) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("%d writes of its own, %d foreign", g.writes[g.local], g.writes[g.foreign])
}

// as returns a client with the identity of one of the worker's ServiceAccounts.
func (s *scenario) as(account string) (client.Client, error) {
	config := s.Cluster(s.victim).Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + stack.Namespace + ":" + account}
	return client.New(config, client.Options{})
}

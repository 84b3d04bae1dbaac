// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
)

// sandboxesOnOnePod checks that a sandbox is on one Pod, under the id that its cluster created.
func sandboxesOnOnePod(s *Snapshot) []Finding {
	var found []Finding
	first := map[string]claimed{}
	for _, c := range s.live() {
		id, annotated := c.id(), c.pod.Annotations[v1alpha1.SandboxIDAnnotationKey]
		wrong := func(expected, format string, args ...any) {
			found = append(found, Finding{Invariant: "I1", Cluster: c.cluster.ID, Object: podName(c.pod),
				Wrong: fmt.Sprintf(format, args...), Expected: expected})
		}
		switch {
		case id == "":
			wrong("one, written with the phase", "is %s without a sandbox id", phase(c.pod))
			continue
		case id != annotated:
			wrong("the same, from one write", "label says sandbox %q, annotation %q", id, annotated)
		case !strings.HasSuffix(id, "-"+c.cluster.ID):
			wrong("an id ending in -"+c.cluster.ID, "sandbox %q was not minted by this cluster", id)
		}
		if other, twice := first[id]; twice {
			wrong("one Pod a sandbox", "sandbox %s is also on %s", id, other)
			continue
		}
		first[id] = c
	}
	return found
}

// claimsAreOrdered checks that nothing is written under an incarnation that was never persisted, and that the hub accepts no such
// incarnation.
func claimsAreOrdered(s *Snapshot) []Finding {
	var found []Finding
	for _, c := range s.live() {
		text := c.pod.Annotations[v1alpha1.ClaimIncarnationAnnotationKey]
		n, err := strconv.ParseUint(text, 10, 64)
		if text == "" || c.cluster.Incarnation == 0 || err == nil && n <= c.cluster.Incarnation {
			continue
		}
		found = append(found, Finding{Invariant: "I1", Cluster: c.cluster.ID, Object: podName(c.pod),
			Wrong: fmt.Sprintf("was claimed under incarnation %q, the highest persisted is %d", text, c.cluster.Incarnation),
			// The ConfigMap may have been read before the Pods.
			Expected: "an incarnation to be persisted before it is used", passing: true})
	}
	return found
}

// keysOnOnePod checks that each claim key has one live Pod. A second Pod may exist for a moment, unacknowledged, before it ends. Keys of a
// forgotten cluster are abandoned and may be claimed elsewhere.
func keysOnOnePod(s *Snapshot) []Finding {
	var found []Finding
	first, forgotten := map[string]claimed{}, s.forgotten()
	for _, c := range s.live() {
		hash := c.pod.Labels[v1alpha1.ClaimKeyHashLabelKey]
		if hash == "" || forgotten(c.cluster.ID) {
			continue
		}
		if other, twice := first[hash]; twice {
			found = append(found, Finding{Invariant: "I2", Cluster: c.cluster.ID, Object: podName(c.pod),
				Wrong:    fmt.Sprintf("claim key %s is also on %s", hash, other),
				Expected: "one sandbox a key; the other one to end as Canceled", passing: true})
			continue
		}
		first[hash] = c
	}
	return found
}

// keysOfOneSpace finds a key that a client used at the hub and at the local API of a worker in another cluster, as a fallback. It then has
// a second sandbox, which no hub ends.
func keysOfOneSpace(s *Snapshot) []Finding {
	type key struct{ team, namespace, key string }
	keyOf := func(p *corev1.Pod) key {
		return key{p.Annotations[v1alpha1.LabelTeam], p.Namespace, p.Annotations[v1alpha1.ClaimKeyAnnotationKey]}
	}
	hubs, forgotten := map[key]claimed{}, s.forgotten()
	live := s.live()
	for _, c := range live {
		if hash, _ := hubKey(c.pod); hash != "" && !forgotten(c.cluster.ID) {
			hubs[keyOf(c.pod)] = c
		}
	}
	var found []Finding
	for _, c := range live {
		hash, _ := hubKey(c.pod)
		other, twice := hubs[keyOf(c.pod)]
		if !twice || hash != "" || forgotten(c.cluster.ID) {
			continue
		}
		found = append(found, Finding{Invariant: "I2", Cluster: c.cluster.ID, Object: podName(c.pod),
			Wrong:    fmt.Sprintf("was claimed at the local API under claim key %q, which the hub has on %s", keyOf(c.pod).key, other),
			Expected: "one sandbox a key; its caller to release one of them"})
	}
	return found
}

// hubKey returns the key of a Pod that was claimed through a hub. Keys of workers' local APIs have their own name space, so their hashes
// differ.
func hubKey(p *corev1.Pod) (hash string, request *sandboxv1.GetClaimRequest) {
	key, team := p.Annotations[v1alpha1.ClaimKeyAnnotationKey], p.Annotations[v1alpha1.LabelTeam]
	hash = p.Labels[v1alpha1.ClaimKeyHashLabelKey]
	sum := sha256.Sum256([]byte(team + "\x00" + p.Namespace + "\x00" + key))
	if key == "" || hash != hex.EncodeToString(sum[:16]) {
		return "", nil
	}
	return hash, &sandboxv1.GetClaimRequest{ClaimKey: key, Namespace: p.Namespace, Team: team}
}

// keysAsTheHubKnows checks that every key on a Pod was sent by the hub.
func keysAsTheHubKnows(s *Snapshot) []Finding {
	if s.Hub == nil {
		return nil
	}
	var found []Finding
	forgotten := s.forgotten()
	for _, c := range s.live() {
		hash, _ := hubKey(c.pod)
		claim, asked := s.Hub.Claims[hash]
		if !asked || forgotten(c.cluster.ID) {
			continue
		}
		var wrong string
		switch held := claim.GetSandbox().GetId(); {
		case claim == nil:
			wrong = "carries a claim key that the hub does not know"
		case claim.GetClusterId() != c.cluster.ID:
			wrong = fmt.Sprintf("carries a claim key that the hub holds in %s", claim.GetClusterId())
		case held != "" && held != c.id():
			wrong = fmt.Sprintf("carries the claim key of sandbox %s", held)
		default:
			continue
		}
		found = append(found, Finding{Invariant: "I2", Cluster: c.cluster.ID, Object: podName(c.pod), Wrong: wrong,
			Expected: "the hub to know the key as held here, by " + c.id(), passing: true})
	}
	return found
}

// hubListsSandboxes checks that the hub lists exactly the sandboxes that are on Pods.
func hubListsSandboxes(s *Snapshot) []Finding {
	if s.Hub == nil {
		return nil
	}
	registered := s.Hub.registered()
	asked := func(cluster string) bool {
		return current(registered[cluster]) && !slices.Contains(s.Hub.Silent, cluster)
	}
	listed := map[string]*sandboxv1.Sandbox{}
	for _, sandbox := range s.Hub.Sandboxes {
		listed[sandbox.GetId()] = sandbox
	}
	var found []Finding
	onPods := map[string]bool{}
	for _, c := range s.live() {
		onPods[c.id()] = true
		sandbox, ok := listed[c.id()]
		switch {
		case !asked(c.cluster.ID) || c.id() == "":
		case !ok:
			found = append(found, Finding{Invariant: "I2", Cluster: c.cluster.ID, Object: podName(c.pod),
				Wrong: "sandbox " + c.id() + " is missing in the hub's list", Expected: "a returned sandbox not to be lost", passing: true})
		case sandbox.GetPodUid() != "" && sandbox.GetPodUid() != string(c.pod.UID):
			found = append(found, Finding{Invariant: "I1", Cluster: c.cluster.ID, Object: podName(c.pod),
				Wrong: "the hub says that sandbox " + c.id() + " is on pod " + sandbox.GetPod(), Expected: "one Pod a sandbox", passing: true})
		}
	}
	for i := range s.Clusters {
		id := s.Clusters[i].ID
		for _, sandbox := range s.Hub.Sandboxes {
			ended := sandbox.GetPhase() != sandboxv1.Phase_RUNNING && sandbox.GetPhase() != sandboxv1.Phase_STARTING
			if sandbox.GetClusterId() != id || ended || onPods[sandbox.GetId()] || !asked(id) {
				continue
			}
			found = append(found, Finding{Invariant: "I5", Cluster: id, Object: "sandbox " + sandbox.GetId(),
				Wrong:    fmt.Sprintf("the hub lists it as %s, and no Pod carries it", sandbox.GetPhase()),
				Expected: "it to have ended, with a record, or pod " + sandbox.GetPod() + " to be there", passing: true})
		}
	}
	return found
}

// sandboxesAreLeftAlone checks that no part of Atoll ends a running sandbox without a release.
func sandboxesAreLeftAlone(s *Snapshot) []Finding {
	var found []Finding
	for i := range s.Clusters {
		c := &s.Clusters[i]
		for j := range c.Pods {
			p := &c.Pods[j]
			if !busy(p) || p.Annotations[v1alpha1.AllowDrainAnnotationKey] == v1alpha1.AllowDrainForce {
				continue
			}
			var wrong, expected string
			passing := false
			switch since := p.Annotations[v1alpha1.SandboxScaleDownProtectedAnnotationKey]; {
			case since != "":
				wrong = fmt.Sprintf("its sandbox is %s, and it is marked for scale-down since %s", phase(p), since)
				expected = "the claim to have taken the mark off"
			case p.DeletionTimestamp != nil && poolStays(c, p) && !disrupted(p):
				wrong = fmt.Sprintf("is being deleted while its sandbox is %s", phase(p))
				expected = "a release first; the API server's audit log has who deleted it"
				passing = true // a release deletes the Pod, and shows its reason once the record is kept
			default:
				continue
			}
			found = append(found, Finding{Invariant: "I6", Cluster: c.ID, Object: podName(p), Wrong: wrong, Expected: expected, passing: passing})
		}
	}
	return found
}

// poolStays reports whether the Pod's pool exists and is not being deleted. Deleting a pool or its Env ends the pool's sandboxes.
func poolStays(c *Cluster, p *corev1.Pod) bool {
	pool := poolOf(c, p.Namespace, p.Labels[v1alpha1.SandboxPoolLabelKey])
	return pool != nil && pool.DeletionTimestamp == nil
}

func poolOf(c *Cluster, namespace, name string) *v1alpha1.SandboxPool {
	for i := range c.Pools {
		if p := &c.Pools[i]; p.Namespace == namespace && p.Name == name {
			return p
		}
	}
	return nil
}

// disrupted reports whether Kubernetes is removing the Pod: eviction, preemption or a lost node.
func disrupted(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// Grant is everything that a claim writes on its Pod.
type Grant struct {
	Claim
	Timeouts Timeouts
	Labels   map[string]string
	Metadata map[string]string
	Image    string // image of the sandbox
	// DenyEgress keeps the pool's network policies from opening anything for the Pod.
	DenyEgress bool
	// Preparing shows the sandbox to callers as starting until PreparedPatch.
	Preparing bool
	// Hooks are the post-start hooks, as package hook encodes them.
	Hooks string
	// Hold keeps a sandbox starting even if its image is right, because hooks or checks must run first.
	Hold bool
	Now  time.Time
}

// ErrLabelTaken refuses a claim whose labels would overwrite those of the Pod's template.
var ErrLabelTaken = errors.New("label is set by the pool's template")

// ClaimPatch returns the one write that assigns a Pod to a claim, and the resulting phase: Running if the Pod already runs the image and
// Hold is not set, else Starting.
func ClaimPatch(pod *corev1.Pod, g *Grant) ([]byte, Phase, error) {
	phase, kept := Starting, Runs(pod, g.Image)
	if kept && !g.Hold && g.Hooks == "" {
		phase = Running
	}
	p := newPatch(2048)
	p.testUID(pod)
	p.testLabel(v1alpha1.SandboxPhaseLabelKey, string(Idle))
	p.testAlive()
	// A Pod that was claimed a moment ago does not become idle because its label is edited.
	p.testAnnotation(pod, v1alpha1.SandboxIDAnnotationKey)
	// A Pod that has run a sandbox meanwhile has another idle time. So has a Pod that was seen before etcd was restored, whose container may
	// have had a tenant in the lost time (I1, I13).
	p.testAnnotation(pod, v1alpha1.SandboxIdleSinceAnnotationKey)
	if kept {
		p.testImage(pod.Spec.Containers[0].Image)
	}
	p.setPhase(phase)
	p.setLabel(v1alpha1.SandboxIDLabelKey, g.ID)
	p.setAnnotation(v1alpha1.SandboxIDAnnotationKey, g.ID)
	if g.DenyEgress {
		p.setLabel(v1alpha1.EgressLabelKey, v1alpha1.EgressDenied)
	}
	if g.KeyHash != "" {
		p.setLabel(v1alpha1.ClaimKeyHashLabelKey, g.KeyHash)
		p.setAnnotation(v1alpha1.ClaimKeyAnnotationKey, g.Key)
		p.setAnnotation(v1alpha1.ClaimAttemptAnnotationKey, itoa(int64(g.Attempt)))
		if g.Proof != "" || pod.Annotations[v1alpha1.ClaimProofAnnotationKey] != "" { // an older worker leaves the last tenant's proof
			p.setAnnotation(v1alpha1.ClaimProofAnnotationKey, g.Proof)
		}
	}
	p.setAnnotation(v1alpha1.ClaimIncarnationAnnotationKey, strconv.FormatUint(g.Incarnation, 10))
	p.setTenant(v1alpha1.LabelTeam, g.Team)
	p.setTenant(v1alpha1.LabelUser, g.User)
	p.setTime(v1alpha1.SandboxClaimedAtAnnotationKey, g.Now)
	p.setSeconds(v1alpha1.SandboxIdleTimeoutAnnotationKey, g.Timeouts.Idle)
	p.setSeconds(v1alpha1.SandboxMaxLifetimeAnnotationKey, g.Timeouts.MaxLifetime)
	p.setSeconds(v1alpha1.SandboxFirstActivityTimeoutAnnotationKey, g.Timeouts.FirstActivity)
	p.setSeconds(v1alpha1.SandboxStartupTimeoutAnnotationKey, g.Timeouts.Startup)
	// Clear the mark even if none is seen. It may be a moment old, and the Pod would be deleted when it is idle again.
	p.setAnnotation(v1alpha1.SandboxScaleDownProtectedAnnotationKey, "")
	p.setText(v1alpha1.SandboxPostStartHooksAnnotationKey, g.Hooks)
	if g.Preparing {
		p.setAnnotation(v1alpha1.SandboxPreparingAnnotationKey, "true")
	} else {
		p.clear(pod, v1alpha1.SandboxPreparingAnnotationKey) // an older worker leaves the last tenant's value
	}
	if phase == Running {
		p.setTime(v1alpha1.SandboxStartedAtAnnotationKey, g.Now)
	}
	if kept {
		p.setAnnotation(v1alpha1.SandboxContainerIDAnnotationKey, ContainerID(pod))
	} else {
		p.setAnnotation(v1alpha1.SwapFromContainerIDAnnotationKey, ContainerID(pod))
		p.setImage(g.Image)
	}
	if err := p.setUserData(pod, g); err != nil {
		return nil, "", err
	}
	p.dropManagedFields()
	return p.bytes(), phase, nil
}

// setTenant writes a name that may be invalid as a label: hashed as a label, and raw as an annotation.
func (p *patch) setTenant(key, name string) {
	if name != "" {
		p.setLabel(key, hash32(name))
		p.setAnnotation(key, name)
	}
}

func (p *patch) setUserData(pod *corev1.Pod, g *Grant) error {
	if len(g.Labels) > 0 {
		keys := make([]string, 0, len(g.Labels))
		for name := range g.Labels {
			key := v1alpha1.TenantLabelPrefix + name
			if _, taken := pod.Labels[key]; taken {
				return fmt.Errorf("%w: %s", ErrLabelTaken, key)
			}
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			p.setLabel(key, g.Labels[strings.TrimPrefix(key, v1alpha1.TenantLabelPrefix)])
		}
		p.setAnnotation(v1alpha1.SandboxManagedLabelKeysAnnotationKey, strings.Join(keys, ","))
	}
	if len(g.Metadata) > 0 {
		metadata, err := json.Marshal(g.Metadata)
		if err != nil {
			return fmt.Errorf("encoding metadata: %w", err)
		}
		p.setAnnotation(v1alpha1.SandboxMetadataAnnotationKey, string(metadata))
	}
	return nil
}

// KeyHash returns the label value of a claim key. The hub's keys are unique per team and namespace.
func KeyHash(team, namespace, key string) string {
	return hash32(team + "\x00" + namespace + "\x00" + key)
}

// LocalKeyHash returns the label value of a claim key from a worker's local API; each cluster has its own key space.
func LocalKeyHash(team, namespace, key, clusterID string) string {
	return hash32(strings.Join([]string{team, namespace, key, "local", clusterID}, "\x00"))
}

func hash32(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

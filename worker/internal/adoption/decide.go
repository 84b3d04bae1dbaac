// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/snapshot"
)

// Mode selects which pools are adopted.
type Mode string

// The modes; see the package's documentation.
const (
	Off     Mode = "off"
	ByLabel Mode = "label"
	All     Mode = "all"
)

// ParseMode parses a mode.
func ParseMode(text string) (Mode, error) {
	switch m := Mode(text); m {
	case Off, ByLabel, All:
		return m, nil
	}
	return Off, fmt.Errorf("%q is not valid, want off, label or all", text)
}

// verb is an action on a pool.
type verb string

const (
	verbNone   verb = "None"
	verbCreate verb = "Create" // create the Env
	verbOwn    verb = "Own"    // add the owner reference to the pool
	verbWait   verb = "Wait"   // wait until an Env is gone
	verbRefuse verb = "Refuse" // do nothing until an object changes
)

// Reasons of decisions and Events.
const (
	reasonNotAsked      = "NotAskedFor"
	reasonOwned         = "EnvOwned"
	reasonWasMember     = "MemberOfEnv"
	reasonTerminating   = "Terminating"
	reasonPoolAdopted   = "PoolAdopted"
	reasonEnvMade       = "EnvMadeForPool"
	reasonEnvOfOther    = "EnvExists"
	reasonEnvTerminates = "EnvTerminating"
	reasonBare          = "AwaitingTemplate"
)

type decision struct {
	verb    verb
	reason  string
	message string
}

// decide returns what to do about a pool; e is the Env of its name, nil if there is none.
func decide(mode Mode, pool *v1alpha1.SandboxPool, e *v1alpha1.SandboxEnv) decision {
	switch {
	case mode == Off, mode == ByLabel && pool.Labels[v1alpha1.ManagedByLabelKey] != v1alpha1.ManagedBySandboxAPIServer:
		return decision{verb: verbNone, reason: reasonNotAsked}
	case v1alpha1.HasEnvOwner(pool):
		return decision{verb: verbNone, reason: reasonOwned}
	case pool.Labels[v1alpha1.LabelEnv] != "":
		return decision{verb: verbNone, reason: reasonWasMember}
	case pool.DeletionTimestamp != nil:
		return decision{verb: verbNone, reason: reasonTerminating}
	case len(pool.Spec.Template.Spec.Containers) == 0:
		// A snapshot without containers does not count, so the Env would render the member instead of adopting the pool.
		return decision{verb: verbNone, reason: reasonBare}
	case e == nil:
		return decision{verb: verbCreate, reason: reasonEnvMade}
	case e.DeletionTimestamp != nil:
		return decision{verb: verbWait, reason: reasonEnvTerminates}
	case e.Annotations[v1alpha1.AdoptedPoolAnnotationKey] != string(pool.UID):
		return decision{verb: verbRefuse, reason: reasonEnvOfOther, message: fmt.Sprintf(
			"not adopted: there is a SandboxEnv %s that was not made for this pool; rename or remove either of them", e.Name)}
	}
	return decision{verb: verbOwn, reason: reasonPoolAdopted}
}

// envFor returns the document of a pool's new Env, given the pool's spec as a document. It does not use the Go type, because that would
// drop the empty scaling group, and the API server would set the default.
func envFor(clusterID string, pool *v1alpha1.SandboxPool, spec map[string]any) (map[string]any, error) {
	config := map[string]any{"scalingGroup": ""}
	if containers := pool.Spec.Template.Spec.Containers; len(containers) > 0 {
		resources, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&containers[0].Resources)
		if err != nil {
			return nil, fmt.Errorf("encoding resources: %w", err)
		}
		if len(resources) > 0 {
			config["inlineResources"] = resources
		}
	}
	frozen := snapshot.TakenBack(pool, spec, pool.Spec.Replicas)
	// Overrides that another system recorded do not describe those of this Env.
	delete(frozen.Annotations, v1alpha1.SandboxPoolOverridesAnnotationKey)
	return map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       v1alpha1.SandboxEnvOwnerKind,
		"metadata": map[string]any{
			"name": pool.Name, "namespace": pool.Namespace,
			"annotations": map[string]any{v1alpha1.AdoptedPoolAnnotationKey: string(pool.UID)},
		},
		"spec": map[string]any{
			"mode":        string(v1alpha1.SandboxEnvModeWarmPool),
			"templateRef": map[string]any{"name": templateOf(pool)},
			"clusters": []any{map[string]any{
				"clusterID": clusterID,
				"members":   []any{map[string]any{"name": pool.Name, "metadata": frozen.Metadata(), "spec": frozen.Spec, "config": config}},
			}},
		},
	}, nil
}

func templateOf(pool *v1alpha1.SandboxPool) string {
	return cmp.Or(pool.Annotations[v1alpha1.SandboxPoolTemplateNameAnnotationKey], pool.Spec.TemplateName, pool.Name)
}

// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

func TestSchemeKnowsEveryKind(t *testing.T) {
	scheme := runtime.NewScheme()
	must.Succeed(t, v1alpha1.AddToScheme(scheme))
	for _, kind := range []string{
		"SandboxEnv", "SandboxEnvList", "SandboxPool", "SandboxPoolList", "SandboxTemplate", "SandboxTemplateList",
	} {
		if _, err := scheme.New(v1alpha1.GroupVersion.WithKind(kind)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// A key that the API server does not take fails only when it is first written.
func TestKeysAreWhatTheServerTakes(t *testing.T) {
	keys := []string{
		v1alpha1.SandboxPoolLabelKey, v1alpha1.SandboxPhaseLabelKey, v1alpha1.SandboxIDLabelKey,
		v1alpha1.ManagedByLabelKey, v1alpha1.ClaimKeyHashLabelKey, v1alpha1.LabelTeam, v1alpha1.LabelUser,
		v1alpha1.LabelEnv, v1alpha1.LabelScalingGroup, v1alpha1.LabelSyncSource,
		v1alpha1.SandboxProtectionFinalizer, v1alpha1.SandboxPoolFinalizer, v1alpha1.CatalogFinalizer,
		v1alpha1.SandboxIDAnnotationKey, v1alpha1.SandboxClaimedAtAnnotationKey,
		v1alpha1.SandboxStartedAtAnnotationKey, v1alpha1.SandboxIdleTimeoutAnnotationKey,
		v1alpha1.SandboxStartupTimeoutAnnotationKey, v1alpha1.SandboxLastActiveAnnotationKey,
		v1alpha1.SandboxMetadataAnnotationKey, v1alpha1.SandboxManagedLabelKeysAnnotationKey,
		v1alpha1.SandboxManagedAnnotationKeysAnnotationKey, v1alpha1.SandboxPostStartHooksAnnotationKey,
		v1alpha1.SandboxStatusDetailAnnotationKey, v1alpha1.ClaimKeyAnnotationKey,
		v1alpha1.ClaimAttemptAnnotationKey, v1alpha1.ClaimProofAnnotationKey, v1alpha1.ClaimIncarnationAnnotationKey,
		v1alpha1.SwapFromContainerIDAnnotationKey, v1alpha1.SandboxStopReasonAnnotationKey,
		v1alpha1.SandboxTerminatedAtAnnotationKey, v1alpha1.SandboxFailureReasonAnnotationKey,
		v1alpha1.SandboxFailureMessageAnnotationKey, v1alpha1.SandboxExitCodeAnnotationKey,
		v1alpha1.SandboxRunningImagesAnnotationKey, v1alpha1.SandboxContainerIDAnnotationKey,
		v1alpha1.SandboxScaleDownProtectedAnnotationKey, v1alpha1.TemplateRevisionAnnotationKey,
		v1alpha1.RecyclePolicyAnnotationKey, v1alpha1.AllowDrainAnnotationKey,
		v1alpha1.SandboxTemplateDocsAnnotationKey, v1alpha1.SandboxPoolTemplateNameAnnotationKey,
		v1alpha1.SandboxPoolTemplateVersionAnnotationKey, v1alpha1.SandboxPoolOverridesAnnotationKey,
		v1alpha1.SandboxdAnnotationKey,
		v1alpha1.LastSandboxCreateTimeAnnotationKey, v1alpha1.HookSecretLabelKey, v1alpha1.HookSecretTeamsAnnotationKey,
	}
	for _, key := range keys {
		for _, problem := range validation.IsQualifiedName(key) {
			t.Errorf("%s: %s", key, problem)
		}
	}
}

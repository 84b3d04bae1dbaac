// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"k8s.io/utils/ptr"

	"navix.sh/atoll/api/v1alpha1"
)

func TestEffectivePriorities(t *testing.T) {
	tests := []struct {
		name     string
		config   v1alpha1.EnvClusterMemberConfig
		up, down int32
	}{
		{name: "nothing set"},
		{name: "priority stands in for both", config: v1alpha1.EnvClusterMemberConfig{Priority: 7}, up: 7, down: 7},
		{name: "up alone is overridden", config: v1alpha1.EnvClusterMemberConfig{Priority: 7, ScaleUpPriority: ptr.To[int32](3)},
			up: 3, down: 7},
		{name: "down alone is overridden", config: v1alpha1.EnvClusterMemberConfig{Priority: 7, ScaleDownPriority: ptr.To[int32](9)},
			up: 7, down: 9},
		{
			name: "zero overrides, it is not absence",
			config: v1alpha1.EnvClusterMemberConfig{
				Priority: 7, ScaleUpPriority: ptr.To[int32](0), ScaleDownPriority: ptr.To[int32](0),
			},
		},
		{name: "negative values count", config: v1alpha1.EnvClusterMemberConfig{Priority: 1, ScaleUpPriority: ptr.To[int32](-5)},
			up: -5, down: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.config.EffectiveScaleUpPriority(); got != tt.up {
				t.Errorf("EffectiveScaleUpPriority() = %d, want %d", got, tt.up)
			}
			if got := tt.config.EffectiveScaleDownPriority(); got != tt.down {
				t.Errorf("EffectiveScaleDownPriority() = %d, want %d", got, tt.down)
			}
		})
	}
}

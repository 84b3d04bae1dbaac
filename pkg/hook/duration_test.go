// SPDX-License-Identifier: Apache-2.0

package hook_test

import (
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/hook"
	"navix.sh/atoll/pkg/serve"
)

// A hook's timeout is told in the words that the server has for every duration.
func TestADurationIsToldAsTheServerTellsIt(t *testing.T) {
	for _, timeout := range []any{"soon", "1h", 5} {
		s, err := structpb.NewStruct(map[string]any{"exec": map[string]any{"command": []any{"a"}}, "timeout": timeout})
		must.Succeed(t, err)
		faults := hook.Faults([]*structpb.Struct{s})
		if len(faults) != 1 || faults[0].Valid != serve.ValidDuration+", from 100ms to 5m" {
			t.Errorf("%v: %+v", timeout, faults)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/wait"
)

// A hook that fails ends its sandbox before its caller gets it, and a sandbox that does not run reports why: through the hub.
func TestHooksAndDiagnosis(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "hooks", equally(1)...)
	t.Cleanup(rest.CloseIdleConnections)

	// Nothing listens there, neither in a Pod nor in what plays one.
	key := unused("hooks")
	const hooks = `"postStartHooks": [{"name": "init", "http": {"port": 9, "path": "/init", "body": "hunter2"}, "timeout": "500ms", ` +
		`"retries": 0}]`
	request := fmt.Sprintf(`{"env": %q, %s}`, e.Name, hooks)
	failed := call(ctx, t, 422, "POST", "/v1/sandboxes", request, "Idempotency-Key", key)
	if !strings.Contains(failed.Detail, `PostStartHookFailed: hook 0 (http, "init") failed 1 of 1 times`) ||
		strings.Contains(failed.text, "hunter2") {
		t.Errorf("a claim whose hook fails is answered %s", failed.text)
	}
	ended := call(ctx, t, 200, "GET", "/v1/claims/"+url.PathEscape(key), "")
	wait.For(t, patience, "the record of the sandbox whose hook failed", func(ctx context.Context) error {
		got := call(ctx, t, 200, "GET", "/v1/sandboxes/"+ended.Sandbox.Id, "")
		return wait.If(got.Phase == "ENDED" && strings.Contains(got.text, `"failureReason":"PostStartHookFailed"`) &&
			!strings.Contains(got.text, "startedAt"), got.text)
	})
	again := call(ctx, t, 422, "POST", "/v1/sandboxes", request, "Idempotency-Key", key)
	if again.Reason != "MISCONFIGURED" || again.Detail != failed.Detail {
		t.Errorf("the key is answered %s, and before %s", again.text, failed.text)
	}
	refused := call(ctx, t, 422, "POST", "/v1/sandboxes", fmt.Sprintf(
		`{"env": %q, "postStartHooks": [{"exec": {"command": ["no-such-program", "hunter2"]}, "retries": 0}]}`, e.Name))
	if !strings.Contains(refused.Detail, `PostStartHookFailed: hook 0 (exec) failed 1 of 1 times`) ||
		strings.Contains(refused.text, "hunter2") {
		t.Errorf("a claim whose command fails is answered %s", refused.text)
	}
	call(ctx, t, 400, "POST", "/v1/sandboxes", fmt.Sprintf(`{"env": %q, "postStartHooks": [{"http": {"port": 80, "host": "elsewhere"}}]}`,
		e.Name))

	waiting := call(ctx, t, 200, "POST", "/v1/sandboxes", fmt.Sprintf(
		`{"env": %q, "image": "registry.invalid/fail-pull:1", "wait": "ASSIGNED"}`, e.Name), "Idempotency-Key", unused("hooks"))
	wait.For(t, patience, "a reason why the sandbox does not run", func(ctx context.Context) error {
		got := call(ctx, t, 200, "GET", "/v1/sandboxes/"+waiting.Id, "")
		pulls := strings.Contains(got.text, `"reason":"ErrImagePull"`) || strings.Contains(got.text, `"reason":"ImagePullBackOff"`)
		return wait.If(pulls || strings.Contains(got.text, `"failureReason":"ImagePullBackOff"`), got.text)
	})
	mustVerify(ctx, t)
}

// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/problem"
)

// object reads an object of Kubernetes.
func (m *methods) object(text string) *structpb.Struct {
	m.t.Helper()
	out := &structpb.Struct{}
	must.Succeed(m.t, protojson.Unmarshal([]byte(text), out))
	return out
}

// lives walks the life of a sandbox. A hub and a worker serve all of that. space is that of the worker's claim keys.
func (m *methods) lives(claimKey string, space ...string) {
	m.t.Helper()
	object := audit.Object{Namespace: "default", Env: "python", User: "ada", ClaimKeyHash: keyHash(claimKey, space...)}
	made, ok := m.change(sandboxv1.Sandboxes_CreateSandbox_FullMethodName, &sandboxv1.CreateSandboxRequest{
		Env: "python", User: "ada", ClaimKey: claimKey, Metadata: map[string]string{"note": canary + "metadata"},
	}, object, cluster).(*sandboxv1.Sandbox)
	if !ok || made.GetId() == "" {
		m.t.Fatalf("a create returned %v", made)
	}
	id := made.GetId()
	m.read(sandboxv1.Sandboxes_GetSandbox_FullMethodName, &sandboxv1.GetSandboxRequest{Id: id})
	m.read(sandboxv1.Sandboxes_ListSandboxes_FullMethodName, &sandboxv1.ListSandboxesRequest{Env: "python"})
	m.read(sandboxv1.Sandboxes_WatchSandboxes_FullMethodName, &sandboxv1.WatchSandboxesRequest{Env: "python"})
	m.read(sandboxv1.Sandboxes_TouchSandbox_FullMethodName, &sandboxv1.TouchSandboxRequest{Id: id})
	m.read(sandboxv1.Claims_GetClaim_FullMethodName, &sandboxv1.GetClaimRequest{ClaimKey: claimKey})
	m.change(sandboxv1.Sandboxes_UpdateSandbox_FullMethodName,
		&sandboxv1.UpdateSandboxRequest{Id: id, IdleTimeout: durationpb.New(3600e9)}, object, cluster)
	m.change(sandboxv1.Sandboxes_PauseSandbox_FullMethodName, &sandboxv1.PauseSandboxRequest{Id: id}, object, cluster)
	m.change(sandboxv1.Sandboxes_ResumeSandbox_FullMethodName, &sandboxv1.ResumeSandboxRequest{Id: id}, object, cluster)
	m.change(sandboxv1.Sandboxes_ReleaseSandbox_FullMethodName, &sandboxv1.ReleaseSandboxRequest{Id: id}, object, cluster)
	m.refused(sandboxv1.Sandboxes_ReleaseSandbox_FullMethodName, &sandboxv1.ReleaseSandboxRequest{Id: "01arz3ndektsv4rrffq69g5fav-east"},
		audit.Object{Sandbox: "01arz3ndektsv4rrffq69g5fav-east"}, "", problem.NotFound)
	object.Sandbox = id
	m.change(sandboxv1.Claims_CancelClaim_FullMethodName, &sandboxv1.CancelClaimRequest{ClaimKey: claimKey}, object, cluster)
}

// envs walks what shows Envs and makes members anew. A hub and a worker serve all of that.
func (m *methods) envs() {
	m.t.Helper()
	m.read(sandboxv1.Envs_ListEnvs_FullMethodName, &sandboxv1.ListEnvsRequest{})
	m.read(sandboxv1.Envs_GetEnv_FullMethodName, &sandboxv1.GetEnvRequest{Namespace: "default", Name: "python"})
	m.read(sandboxv1.Envs_ExplainEnv_FullMethodName, &sandboxv1.ExplainEnvRequest{
		Namespace: "default", Name: "python", Request: &sandboxv1.CreateSandboxRequest{Image: "registry.example/other"},
	})
	m.change(sandboxv1.Envs_RefreshEnv_FullMethodName, &sandboxv1.RefreshEnvRequest{Namespace: "default", Name: "python", DryRun: true},
		audit.Object{Namespace: "default", Name: "python"}, "")
}

// clusters walks what operators do with clusters, the CA and the hub. The other cluster is not there.
func (m *methods) clusters() {
	m.t.Helper()
	east, other := audit.Object{Name: cluster}, audit.Object{Name: "nowhere"}
	m.read(sandboxv1.Clusters_ListClusters_FullMethodName, &sandboxv1.ListClustersRequest{})
	m.read(sandboxv1.Clusters_GetCluster_FullMethodName, &sandboxv1.GetClusterRequest{Id: cluster})
	m.change(sandboxv1.Clusters_UpdateCluster_FullMethodName, &sandboxv1.UpdateClusterRequest{
		Id: cluster, Scope: &sandboxv1.ClusterScope{Namespaces: []string{"default"}},
	}, east, cluster)
	m.change(sandboxv1.Clusters_DrainCluster_FullMethodName, &sandboxv1.DrainClusterRequest{Id: cluster}, east, cluster)
	m.change(sandboxv1.Clusters_UndrainCluster_FullMethodName, &sandboxv1.UndrainClusterRequest{Id: cluster}, east, cluster)
	invitation, _ := m.change(sandboxv1.Clusters_InviteCluster_FullMethodName, &sandboxv1.InviteClusterRequest{Id: "mars"},
		audit.Object{Name: "mars"}, "mars").(*sandboxv1.Invitation)
	m.secret(invitation.GetToken())
	m.refused(sandboxv1.Clusters_ApproveCluster_FullMethodName, &sandboxv1.ApproveClusterRequest{Id: "nowhere"}, other, "nowhere",
		problem.NotFound)
	m.refused(sandboxv1.Clusters_RevokeCluster_FullMethodName, &sandboxv1.RevokeClusterRequest{Id: "nowhere"}, other, "nowhere",
		problem.NotFound)
	m.refused(sandboxv1.Clusters_ForgetCluster_FullMethodName, &sandboxv1.ForgetClusterRequest{Id: "nowhere"}, other, "nowhere",
		problem.NotFound)
	m.read(sandboxv1.Pki_GetPki_FullMethodName, &sandboxv1.GetPkiRequest{})
	m.change(sandboxv1.Pki_RotateCa_FullMethodName, &sandboxv1.RotateCaRequest{}, audit.Object{}, "")
	m.read(sandboxv1.Hub_GetHub_FullMethodName, &sandboxv1.GetHubRequest{})
	m.read(sandboxv1.Hub_ListReplicas_FullMethodName, &sandboxv1.ListReplicasRequest{})
	m.change(sandboxv1.Hub_AcceptLoss_FullMethodName, &sandboxv1.AcceptLossRequest{}, audit.Object{}, "")
}

// secret keeps a token that the hub has made, which may be found nowhere.
func (m *methods) secret(token string) {
	m.t.Helper()
	if len(token) < 20 {
		m.t.Fatalf("%q is no token", token)
	}
	m.secrets = append(m.secrets, token)
}

// policy walks keys, roles and limits.
func (m *methods) policy() {
	m.t.Helper()
	named := audit.Object{Name: "ci"}
	key, _ := m.change(sandboxv1.Keys_CreateKey_FullMethodName, &sandboxv1.CreateKeyRequest{
		Name: "ci", Team: "search", User: "eve", Namespaces: []string{"default"}, Scopes: []string{"claim"},
	}, audit.Object{Name: "ci", Team: "search", User: "eve"}, "").(*sandboxv1.ApiKey)
	m.secret(key.GetToken())
	m.read(sandboxv1.Keys_ListKeys_FullMethodName, &sandboxv1.ListKeysRequest{})
	key, _ = m.change(sandboxv1.Keys_RotateKey_FullMethodName, &sandboxv1.RotateKeyRequest{Name: "ci"}, named, "").(*sandboxv1.ApiKey)
	m.secret(key.GetToken())
	m.change(sandboxv1.Keys_DeleteKey_FullMethodName, &sandboxv1.DeleteKeyRequest{Name: "ci"}, named, "")
	m.refused(sandboxv1.Keys_DeleteKey_FullMethodName, &sandboxv1.DeleteKeyRequest{Name: "ci"}, named, "", problem.NotFound)
	m.read(sandboxv1.Access_GetAccess_FullMethodName, &sandboxv1.GetAccessRequest{BuiltIn: true})
	m.change(sandboxv1.Access_PutAccess_FullMethodName, &sandboxv1.AccessPolicy{
		Roles: []*sandboxv1.Role{{Name: "reader", Rules: []*sandboxv1.Rule{{Resources: []string{"envs"}, Verbs: []string{"get", "list"}}}}},
	}, audit.Object{}, "")
	m.read(sandboxv1.Access_CheckAccess_FullMethodName, &sandboxv1.CheckAccessRequest{
		Verb: "create", Resource: "sandboxes", Namespace: "default",
	})
	m.read(sandboxv1.Access_GetQuotas_FullMethodName, &sandboxv1.GetQuotasRequest{})
}

// changes walks the catalogue: a template, and an Env of it, of which a plan, a rollout and its undoing, an import and a deletion.
func (m *methods) changes() {
	m.t.Helper()
	const namespace, name = "default", "walked"
	shape, of := audit.Object{Name: name}, audit.Object{Namespace: namespace, Name: name}
	python := audit.Object{Namespace: namespace, Name: "python"}
	spec := strings.Replace(env, `"namespace":"default"`,
		`"namespace":"default","annotations":{"agentbox.navix.sh/rollout":"{stages: [[east]], onFailure: pause}"}`, 1)
	first, second := m.object(spec), m.object(strings.Replace(spec, `"replicas":0`, `"replicas":1`, 1))
	m.read(sandboxv1.Templates_PlanTemplate_FullMethodName, &sandboxv1.PlanTemplateRequest{Name: name, Template: m.object(template)})
	m.change(sandboxv1.Templates_PutTemplate_FullMethodName, &sandboxv1.PutTemplateRequest{Name: name, Template: m.object(template)},
		shape, "")
	m.read(sandboxv1.Templates_ListTemplates_FullMethodName, &sandboxv1.ListTemplatesRequest{})
	m.read(sandboxv1.Templates_GetTemplate_FullMethodName, &sandboxv1.GetTemplateRequest{Name: name})
	m.read(sandboxv1.Templates_ListTemplateRevisions_FullMethodName, &sandboxv1.ListTemplateRevisionsRequest{Name: name})
	m.read(sandboxv1.Envs_PlanEnv_FullMethodName, &sandboxv1.PlanEnvRequest{Namespace: namespace, Name: name, Env: first})
	m.change(sandboxv1.Envs_PutEnv_FullMethodName, &sandboxv1.PutEnvRequest{Namespace: namespace, Name: name, Env: first}, of, "")
	m.change(sandboxv1.Envs_PutEnv_FullMethodName, &sandboxv1.PutEnvRequest{Namespace: namespace, Name: name, Env: second}, of, "")
	m.read(sandboxv1.Envs_ListEnvRevisions_FullMethodName, &sandboxv1.ListEnvRevisionsRequest{Namespace: namespace, Name: name})
	m.read(sandboxv1.Envs_GetRollout_FullMethodName, &sandboxv1.GetRolloutRequest{Namespace: namespace, Name: name})
	m.change(sandboxv1.Envs_ControlRollout_FullMethodName, &sandboxv1.ControlRolloutRequest{
		Namespace: namespace, Name: name, Action: sandboxv1.ControlRolloutRequest_UNDO,
	}, of, "")
	m.change(sandboxv1.Envs_DeleteEnv_FullMethodName, &sandboxv1.DeleteEnvRequest{Namespace: namespace, Name: name}, of, "")
	m.change(sandboxv1.Templates_DeleteTemplate_FullMethodName, &sandboxv1.DeleteTemplateRequest{Name: name}, shape, "")
	m.change(sandboxv1.Envs_ImportEnv_FullMethodName,
		&sandboxv1.ImportEnvRequest{Namespace: namespace, Name: "python", DryRun: true}, python, "")
}

// SPDX-License-Identifier: Apache-2.0

package main

// Three roles, for three ServiceAccounts: the worker's, the sync path's, which alone may write foreign segments, and the catalogue's.
//
//go:generate go tool -modfile=../tools/go.mod controller-gen rbac:roleName=atoll-worker,fileName=worker_role.yaml paths=./internal/runner paths=./internal/admission/quota paths=./internal/adoption paths=./internal/agent paths=./internal/autoscale paths=./internal/env paths=./internal/hooks paths=./internal/instances paths=./internal/inventory paths=./internal/netpolicy paths=./internal/pool paths=./internal/podtunnel paths=./internal/segments paths=./internal/foreigncontroller paths=./internal/standalone paths=./internal/podtemplate output:rbac:dir=../charts/worker/files/rbac
//go:generate go tool -modfile=../tools/go.mod controller-gen rbac:roleName=atoll-sync,fileName=sync_role.yaml paths=./internal/sync output:rbac:dir=../charts/worker/files/rbac
//go:generate go tool -modfile=../tools/go.mod controller-gen rbac:roleName=atoll-catalog,fileName=catalog_role.yaml paths=./internal/catalog output:rbac:dir=../charts/worker/files/rbac

-- SPDX-License-Identifier: Apache-2.0
-- Health of SandboxEnvs and SandboxTemplates that the hub takes from its own cluster (--catalog=kubernetes), for Argo CD's ConfigMap
-- argocd-cm: resource.customizations.health.agents.navix.sh_SandboxEnv, and …_SandboxTemplate.
local hs = {status = "Progressing", message = "The hub has not looked at it yet"}
if obj.metadata.deletionTimestamp ~= nil then
  hs.message = "It is being removed from the clusters"
  return hs
end
if obj.status == nil or obj.status.conditions == nil then
  return hs
end
local found = {}
for _, condition in ipairs(obj.status.conditions) do
  found[condition.type] = condition
end
local catalogued = found["Catalogued"]
-- What stands for an older generation says nothing about this one.
if catalogued == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return hs
end
hs.message = catalogued.message
if found["Stalled"] ~= nil and found["Stalled"].status == "True" then
  hs.status = "Degraded"
elseif found["Reconciling"] ~= nil and found["Reconciling"].status == "True" then
  hs.status = "Progressing"
elseif catalogued.status == "True" then
  hs.status = "Healthy"
end
-- Where this cluster has a worker as well, it tells whether its own members can serve.
local ready = found["Ready"]
if hs.status == "Healthy" and ready ~= nil and ready.status == "False" then
  hs.status = "Progressing"
  hs.message = ready.message
  if ready.reason ~= "Reconciling" and ready.reason ~= "MembersMissing" then
    hs.status = "Degraded"
  end
end
return hs

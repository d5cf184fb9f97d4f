<powershell>
[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"
& $EKSBootstrapScriptFile -EKSClusterName 'demo' -APIServerEndpoint 'https://demo.example' -Base64ClusterCA 'Y2VydA==' -KubeletExtraArgs '--node-labels="karpenter.sh/capacity-type=spot,karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=web,team=shop" --register-with-taints="dedicated=web:NoSchedule,node.example/starting=:NoExecute,karpenter.sh/unregistered=:NoExecute" --max-pods=29' -DNSClusterIP '10.100.0.10'
</powershell>

<powershell>
Write-Host hello
[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"
& $EKSBootstrapScriptFile -EKSClusterName 'demo' -APIServerEndpoint 'https://demo.example' -Base64ClusterCA 'Y2VydA==' -KubeletExtraArgs '--node-labels="karpenter.sh/capacity-type=spot,karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=web,team=shop" --register-with-taints="dedicated=web:NoSchedule,node.example/starting=:NoExecute,karpenter.sh/unregistered=:NoExecute" --max-pods=29 --pods-per-core=4 --system-reserved="cpu=100m,memory=100Mi" --kube-reserved="memory=500Mi" --eviction-hard="memory.available<5%,nodefs.available<10%" --eviction-soft="memory.available<10%" --eviction-soft-grace-period="memory.available=1m30s" --eviction-max-pod-grace-period=60 --image-gc-high-threshold=85 --image-gc-low-threshold=80 --cpu-cfs-quota=false' -DNSClusterIP '10.100.0.10'
</powershell>

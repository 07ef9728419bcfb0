"""Running: jobs in processes of this machine or of a cluster, and a folder that keeps what is finished.

Whatever the jobs are: comparisons train small models in them, evaluations measure a released one.

    work        how jobs of one kind are done, and how their answers are read
    team        worker processes of this machine (processes, serving)
    clusters    tasks of a Ray cluster
    store       the folder: records of trials, each whole or not at all
    claims      who runs a trial now, where several runs share a folder
    completion  run what is missing, by either engine, and take what others run
"""
